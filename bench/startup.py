"""How long commands that need no model take to start, against ``import typer`` alone.

    python bench/startup.py [--runs N]

Prints the least user + system time of each command and its ratio to the baseline. The aim is a
ratio of 1.5 at most; nothing here fails on a time.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile

PROGRAM = "from kvg.cli.main import run; run()"
COMMANDS = (
    ["version"],
    ["--help"],
    ["deposit", "--help"],
    ["config", "list"],
    ["status"],
    ["ls"],
    ["log"],
    ["key", "list"],
    ["trust", "list"],
    ["verify"],
    ["nonsense"],
)


def cpu_s(argv: list[str], cwd: str, env: dict[str, str]) -> float:
    """CPU seconds of one run of ``argv``."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        argv, cwd=cwd, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "HOME": folder, "KVG_STORE": ""}
        program = [sys.executable, "-c", PROGRAM]
        for setup in (["init"], ["key", "new", "bench"]):
            subprocess.run([*program, *setup], cwd=folder, env=env, check=True, capture_output=True)
        cases = {"import typer": [sys.executable, "-c", "import typer"]}
        cases |= {" ".join(["kvg", *words]): [*program, *words] for words in COMMANDS}
        times: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(runs):
            for name, argv in cases.items():
                times[name].append(cpu_s(argv, folder, env))
    base = min(times["import typer"])
    for name, values in times.items():
        print(f"{name:<20} {1000 * min(values):6.1f} ms  {min(values) / base:4.2f}x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
