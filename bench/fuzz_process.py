"""The process that ``bench/fuzz_guided.py`` runs for each decoder: the only one with atheris.

    python bench/fuzz_process.py NAME WAY COUNTS [libFuzzer's arguments ...]

Runs until libFuzzer ends it. COUNTS is a file that holds at any time how far it came.
"""

from __future__ import annotations

import mmap
import struct
import sys
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

WAYS = ("edits", "bytes")
BYTES_SHARE, GOOD_SHARE = 0.3, 0.2
"""Where inputs are edited: of mutations those that are of bytes all the same, and those of a good
document, which libFuzzer drops once shorter inputs reach the same code."""

COUNTS = struct.Struct("<4Q")
"""Executions, how many were accepted, KB at the beginning, KB at most."""


def main(name: str, way: str, told_in: str, *arguments: str) -> None:
    import atheris

    with atheris.instrument_imports(include=["kvg"]):
        from tests.corpus import good_inputs, read_input
        from tests.forked import peak_kb
        from tests.fuzzing import Given, folder_in_memory, targets

        folder = folder_in_memory()
        target = targets(Given(folder.__enter__()))[name]
        good = good_inputs(target)
        for data in good:  # what is imported only then is looked into as well
            read_input(target, data)
    with Path(told_in).open("r+b") as file:
        told = mmap.mmap(file.fileno(), COUNTS.size)
    counts = [0, 0, peak_kb(), 0]

    def read(data: bytes) -> None:
        counts[0] += 1
        counts[1] += read_input(target, data)
        counts[3] = peak_kb()
        told[:] = COUNTS.pack(*counts)

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        random = Random(seed)
        if random.random() < BYTES_SHARE:
            return atheris.Mutate(data, most)
        if random.random() < GOOD_SHARE:
            data = random.choice(good)
        return (data[:1] + target.edit(data[1:], random))[:most]

    mutator = mutate if way == "edits" else None
    atheris.Setup([sys.argv[0], *arguments], read, custom_mutator=mutator)
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
