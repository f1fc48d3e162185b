"""Every decoder of untrusted bytes, many times: only our own errors, canonical, bounded memory.

    python bench/fuzz.py [--executions N] [--seed S] [NAME ...]

Edits good documents (``tests/fuzzing.py``) N times for each decoder, a million by default, and
writes one JSON record a decoder: executions, how many were accepted, seconds, and by how much the
process grew. Execution number i draws from ``random.Random(S + i)``, so that a failure, which is
printed with its number, can be run again: ``--seed S+i --executions 1``. Exit status 1 after one.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.fuzzing import Check, Given, checks

JUNK_SHARE = 0.05
MAX_JUNK_BYTES = 200


def execute(check: Check, number: int) -> bool:
    """One execution; whether the bytes were accepted."""
    random = Random(number)
    is_junk = random.random() < JUNK_SHARE
    return check(random, random.randbytes(random.randrange(MAX_JUNK_BYTES)) if is_junk else None)


def grown_kb(before: int) -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    n_failed = 0
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        known = checks(Given(Path(folder)))
        for name in asked.names or known:
            began, accepted = time.monotonic(), 0
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            number, failures = asked.seed, 0
            try:
                for number in range(asked.seed, asked.seed + asked.executions):
                    accepted += execute(known[name], number)
            except Exception as error:  # noqa: BLE001  whatever comes out is the finding
                print(f"{name}: execution {number}: {error!r}", file=sys.stderr)
                failures = 1
            record = {
                "type": "fuzz",
                "decoder": name,
                "seed": asked.seed,
                "executions": number - asked.seed + 1,
                "accepted": accepted,
                "failures": failures,
                "seconds": round(time.monotonic() - began, 1),
                "grown_kb": grown_kb(before),
            }
            print(json.dumps(record), flush=True)
            n_failed += failures
    return int(n_failed > 0)


if __name__ == "__main__":
    sys.exit(main())
