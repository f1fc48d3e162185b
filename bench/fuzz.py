"""Every decoder of untrusted bytes, many times: only our own errors, canonical, bounded memory.

    python bench/fuzz.py [--executions N] [--seed S] [NAME ...]

Edits good documents (``tests/fuzzing.py``) N times for each decoder, a million by default, and
writes one JSON record a decoder: executions, how many were accepted, failures, seconds, and by how
much memory grew at most over a chunk: each 50,000 executions run in a child of their own, and one
that grows by more than 64 MB is a failure. Execution number i draws from ``random.Random(S + i)``,
so that a failure, printed with its number, can be run again: ``--seed S+i --executions 1``.
Exit status 1 after one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.forked import in_child
from tests.fuzzing import NAMES, Given, Target, folder_in_memory, targets

JUNK_SHARE = 0.05
MAX_JUNK_BYTES = 200
CHUNK = 50_000
MOST_GROWN_KB = 64 << 10


def execute(target: Target, number: int) -> bool:
    """One execution; whether the bytes were accepted."""
    random = Random(number)
    is_junk = random.random() < JUNK_SHARE
    return target.check(
        random, random.randbytes(random.randrange(MAX_JUNK_BYTES)) if is_junk else None
    )


def run_chunk(name: str, numbers: range) -> dict[str, int]:
    """Executions ``numbers`` up to the first failure, on documents made anew."""
    accepted, number = 0, numbers.start
    with folder_in_memory() as folder:
        target = targets(Given(folder))[name]
        try:
            for number in numbers:
                accepted += execute(target, number)
        except Exception as error:  # noqa: BLE001  whatever comes out is the finding
            print(f"{name}: execution {number}: {error!r}", file=sys.stderr, flush=True)
            return {"done": number - numbers.start + 1, "accepted": accepted, "failures": 1}
    return {"done": len(numbers), "accepted": accepted, "failures": 0}


def run_decoder(name: str, seed: int, executions: int) -> dict[str, object]:
    """The record of one decoder; it ends at the first chunk with a failure."""
    began = time.monotonic()
    sums, most_grown = Counter[str](), 0
    for start in range(seed, seed + executions, CHUNK):
        numbers = range(start, min(start + CHUNK, seed + executions))
        told, grown_kb = in_child(lambda chunk=numbers: run_chunk(name, chunk))
        sums.update(told)
        most_grown = max(most_grown, grown_kb)
        if grown_kb > MOST_GROWN_KB:
            print(f"{name}: from execution {start} on: {grown_kb:,} KB more", file=sys.stderr)
            sums["failures"] += 1
        if sums["failures"]:
            break
    return {
        "type": "fuzz",
        "decoder": name,
        "seed": seed,
        "executions": sums["done"],
        "accepted": sums["accepted"],
        "failures": sums["failures"],
        "seconds": round(time.monotonic() - began, 1),
        "grown_kb": most_grown,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    asked = parser.parse_args()
    for name in asked.names:
        if name not in NAMES:
            parser.error(f"{name}: no decoder, one of {', '.join(NAMES)}")
    n_failed = 0
    for name in asked.names or NAMES:
        record = run_decoder(name, asked.seed, asked.executions)
        print(json.dumps(record), flush=True)
        n_failed += int(record["failures"] > 0)
    return int(n_failed > 0)


if __name__ == "__main__":
    sys.exit(main())
