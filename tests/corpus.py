"""The corpus in ``tests/corpus``: inputs that reach code which the good documents do not reach.

One folder a decoder, one file an input, named by the SHA-256 of its bytes: the first byte says in
the place of which good document (``tests/fuzzing.py``) the others are read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from types import CodeType, FrameType
from typing import Any

import kvg
from kvg.digest import hex_of, sha256
from tests.fuzzing import Target

FOLDER = Path(__file__).parent / "corpus"
MOST_BYTES = 300_000
"""All of it together."""

MOST_BYTES_OF = {"bundle": 150_000, "manifest": 40_000, "stored form": 12_000}
MOST_BYTES_OF_ANY = 8_000
"""Of one decoder's folder."""

Arc = tuple[CodeType, int, int]
"""A function of ours, and two of its lines that ran one after the other."""

OURS = str(Path(kvg.__file__).parent)


def folder_of(name: str) -> Path:
    return FOLDER / name.replace(" ", "-")


def most_bytes_of(name: str) -> int:
    return MOST_BYTES_OF.get(name, MOST_BYTES_OF_ANY)


def inputs(folder: Path) -> list[bytes]:
    """What lies in a folder, the shortest first; nothing where there is none."""
    found = (path.read_bytes() for path in sorted(folder.glob("*")))
    return sorted(found, key=lambda data: (len(data), data))


def good_inputs(target: Target) -> list[bytes]:
    return [bytes([number]) + seed for number, seed in enumerate(target.seeds)]


def edited_inputs(target: Target, random: Random, count: int) -> Iterator[bytes]:
    """Edits of the good documents, by chance alone."""
    for _ in range(count):
        number = random.randrange(len(target.seeds))
        yield bytes([number]) + target.edit(target.seeds[number], random)


def read_input(target: Target, data: bytes) -> bool:
    """Whether the input is accepted."""
    number = data[0] % len(target.seeds) if data else 0
    return target.read(number, data[1:])


def arcs_of(work: Callable[[], object]) -> frozenset[Arc]:
    """The arcs of ours that ``work`` goes through."""
    found: set[Arc] = set()

    def enter(frame: FrameType, _event: str, _value: object) -> Any:
        code, last = frame.f_code, frame.f_code.co_firstlineno
        if not code.co_filename.startswith(OURS):
            return None

        def step(inner: FrameType, event: str, _value: object) -> Any:
            nonlocal last
            if event == "line":
                found.add((code, last, inner.f_lineno))
                last = inner.f_lineno
            return step

        return step

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        work()
    finally:
        sys.settrace(before)
    return frozenset(found)


def traced(target: Target, data: Sequence[bytes]) -> list[frozenset[Arc]]:
    """The arcs of each input, after the good ones were read once: what is kept is kept then."""
    for item in good_inputs(target):
        read_input(target, item)
    return [arcs_of(lambda item=item: read_input(target, item)) for item in data]


def lines_in(arcs: Sequence[frozenset[Arc]]) -> int:
    """How many lines of ours were reached."""
    return len({(code.co_filename, line) for item in arcs for code, _, line in item})


def least(target: Target, data: Sequence[bytes], most_bytes: int) -> list[bytes]:
    """Inputs of ``most_bytes`` at most that reach what all of ``data`` reach, or as much as can be.

    Each reaches some arc that neither the good documents nor the others do.
    """
    known = frozenset[Arc]().union(*traced(target, good_inputs(target)))
    arcs = [found - known for found in traced(target, data)]
    return list(needed(chosen(dict(zip(data, arcs, strict=True)), most_bytes)))


def chosen(reached: dict[bytes, frozenset[Arc]], most_bytes: int) -> dict[bytes, frozenset[Arc]]:
    """Of inputs those that are taken when the next always adds most arcs for its size."""
    rest, kept = dict(reached), dict[bytes, frozenset[Arc]]()
    while rest := {item: arcs for item, arcs in rest.items() if arcs and len(item) <= most_bytes}:
        best = max(rest, key=lambda item: (len(rest[item]) / (len(item) + 1), item))
        kept[best] = reached[best]
        most_bytes -= len(best)
        rest = {item: arcs - reached[best] for item, arcs in rest.items()}
    return kept


def needed(reached: dict[bytes, frozenset[Arc]]) -> dict[bytes, frozenset[Arc]]:
    """Without those, the longest first, all of whose arcs others reach."""
    kept = dict(reached)
    for item in sorted(reached, key=lambda item: (len(item), item), reverse=True):
        others = (arcs for other, arcs in kept.items() if other != item)
        if kept[item] <= frozenset[Arc]().union(*others):
            del kept[item]
    return kept


def keep(name: str, data: Sequence[bytes]) -> None:
    """Have the folder of a decoder hold ``data`` and nothing else."""
    folder = folder_of(name)
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*"):
        path.unlink()
    for item in data:
        (folder / hex_of(sha256(item))).write_bytes(item)
