"""Two classes of machine on one: a preregistered replay in each, and each against the other.

An x86-64 machine with AVX-512 can be told to compute as one without it. In each class the program
deposits a text, commits to the digests that a run will give, and runs that in a process of its own;
then each class is given the other's preregistration, which it must refuse or meet bit for bit.

    python bench/prereg_classes.py FOLDER [--tokens 600] [--samples 5] [--dtype BF16]

One JSON record a line on standard output. The exit status is 1 unless every class meets its own.
"""

from __future__ import annotations

import argparse
import json
import os
import pydoc_data.topics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from itertools import permutations
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CLASSES: dict[str, dict[str, str]] = {
    "native": {},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
}
CAPABILITY = "import torch; print(torch.backends.cpu.get_cpu_capability())"


class Machine:
    """One class: a way to start the program, in a folder that all classes share."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        homes = {f"XDG_{part}_HOME": str(folder / part) for part in ("DATA", "CONFIG", "CACHE")}
        source = os.pathsep.join([str(ROOT), str(ROOT / "kernels")])
        self.environment = {**os.environ, **homes, "PYTHONPATH": source, **CLASSES[name]}

    def python(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *args],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def kvg(self, *args: str, codes: tuple[int, ...] = (0,)) -> tuple[int, list[dict[str, object]]]:
        """The exit code and the records of one command. Ends the program on another code."""
        done = self.python("-m", "kvg", *args, "--json")
        if done.returncode not in codes:
            raise SystemExit(f"{self.name}: kvg {' '.join(args)}: {done.stderr}")
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def records(
    folder: Path, model: Path, dtype: str, tokens: int, samples: int
) -> Iterator[dict[str, object]]:
    """Everything that is found out, in the order of time."""
    machines = {name: Machine(name, folder) for name in CLASSES}
    first = machines["native"]
    first.kvg("init")
    first.kvg("model", "add", "m", str(model), "--dtype", dtype)
    text = "\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))
    (folder / "text.md").write_text(text[: 4 * tokens], encoding="utf-8")
    committed: dict[str, str] = {}
    for name, machine in machines.items():
        _, (deposited,) = machine.kvg("deposit", name, "text.md")
        _, (made,) = machine.kvg("prereg", "create", name, "--samples", str(samples))
        committed[name] = str(made["digest"])
        capability = machine.python("-c", CAPABILITY).stdout.strip()
        yield {
            "type": "class",
            "class": name,
            "environment": CLASSES[name],
            "capability": capability,
            "tokens": deposited["tokens"],
            "manifest": deposited["digest"],
            "prereg": made,
        }
    for name, machine in machines.items():
        code, found = machine.kvg("prereg", "run", committed[name], codes=(0, 11))
        yield from ({"class": name, **record} for record in found)
        yield {"type": "own", "class": name, "exit": code}
    for own, other in permutations(machines, 2):
        code, found = machines[own].kvg("prereg", "run", committed[other], codes=(0, 7, 11))
        yield {"type": "foreign", "class": own, "prereg_of": other, "exit": code}
        yield from ({"class": own, **record} for record in found)


def judged(found: list[Mapping[str, object]]) -> int:
    """0 when each class met its own and no class got through what is not its own."""
    own = [record for record in found if record["type"] == "own"]
    foreign = [record for record in found if record["type"] == "foreign"]
    whole = len(own) == len(CLASSES) and all(record["exit"] == 0 for record in own)
    return int(not (whole and all(record["exit"] in (0, 7) for record in foreign)))


def main(args: list[str] | None = None) -> int:
    """The program. Returns its exit status."""
    parser = argparse.ArgumentParser(description="Preregistered replays in two machine classes.")
    parser.add_argument("model", type=Path)
    parser.add_argument("--dtype", default="BF16")
    parser.add_argument("--tokens", type=int, default=600, help="about so many")
    parser.add_argument("--samples", type=int, default=5)
    asked = parser.parse_args(args)
    found: list[Mapping[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        work = records(
            Path(folder), asked.model.resolve(), asked.dtype, asked.tokens, asked.samples
        )
        for record in work:
            found.append(record)
            print(json.dumps(record), flush=True)
    return judged(found)


if __name__ == "__main__":
    sys.exit(main())
