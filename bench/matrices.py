"""What the tests that go through a matrix count, as records: the machine, the rows, and their sums.

    python bench/matrices.py crash > crash.jsonl
    python bench/matrices.py stress > stress.jsonl

``crash``: every verb struck by every kind of fault at its steps, and tried on what a loss of power
leaves, in the form that ``make test`` runs (CONTRIBUTING.md, "Long runs", has the longer ones).
``stress``: six writers, four readers and two collectors for ten minutes. The tests judge; one that
fails leaves no records, its report on stderr, and exit status 1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kvg.flow.bench.setup import cpu_name

REPO = Path(__file__).resolve().parent.parent
Record = dict[str, Any]
TESTS: Mapping[str, tuple[str, ...]] = {
    "crash": (
        "tests/store/test_matrix.py",
        "tests/store/test_power.py",
        "tests/exchange/test_crash.py",
        "tests/exchange/test_power.py",
        "tests/exchange/test_forget.py",
    ),
    "stress": ("tests/store/test_stress.py",),
}
SET: Mapping[str, Mapping[str, str]] = {"stress": {"KVG_STRESS_SECONDS": "600"}}
FORMS = ("KVG_CRASH_ALL", "KVG_POWER_STATES")
"""What makes the crash matrix another one than ``make test`` runs."""


def counted(name: str) -> list[Record]:
    """The records of the tests of one matrix. Raises ``CalledProcessError`` when one fails."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "records"
        env = {**SET.get(name, {}), **os.environ, "KVG_RECORDS": os.fspath(place)}
        argv = [sys.executable, "-m", "pytest", "-q", "-n", "0", *TESTS[name]]
        subprocess.run(argv, cwd=REPO, env=env, stdout=sys.stderr, check=True)
        return [json.loads(line) for line in place.read_text().splitlines()]


def sums(records: list[Record], seconds: float) -> Record:
    """What all rows of the crash matrix come to."""
    struck = [row for row in records if row["type"] == "crash"]
    lost = [row for row in records if row["type"] == "power-loss"]
    kinds: Counter[str] = Counter()
    form = " ".join(f"{name}={os.environ[name]}" for name in FORMS if name in os.environ)
    for row in struck:
        kinds.update(row["kinds"])
    return {
        "type": "crash-summary",
        "form": form or "make test",
        "verbs": len({row["verb"] for row in struck}),
        "points": sum(kinds.values()),
        "kinds": dict(kinds),
        "power_verbs": len(lost),
        "power_states": sum(row["states"] for row in lost),
        "power_tried": sum(row["tried"] for row in lost),
        "seconds": round(seconds, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=TESTS)
    name = parser.parse_args().name
    began = time.monotonic()
    try:
        records = counted(name)
    except subprocess.CalledProcessError:
        return 1
    machine: Record = {
        "type": "bench-machine",
        "bench": name,
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "versions": {"python": platform.python_version()},
    }
    more = [sums(records, time.monotonic() - began)] if name == "crash" else []
    for record in (machine, *records, *more):
        print(json.dumps(record), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
