"""How long commands that need no model take to start, against ``import typer`` alone.

    python bench/startup.py [--runs N] [WORD ...]

Prints the least user + system time of each command and its ratio to the baseline, in a store that
holds three small artifacts; every turn begins with the same store, so that what one turn logs is no
work for the next. The commands that check all that a store holds are run in an empty one too, where
they do little but start. WORDs choose the commands that begin with one of them. The aim is a ratio
of 1.5 at most; nothing here fails on a time. Compiled modules are kept, as an installed kvg has
them, whatever ``PYTHONDONTWRITEBYTECODE`` says.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

PROGRAM = "from kvg.cli.main import run; run()"
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("version",),
    ("--help",),
    ("deposit", "--help"),
    ("help", "ask"),
    ("nonsense",),
    ("completion", "bash"),
    ("__complete", "kvg", "sh"),
    ("config", "list"),
    ("config", "get", "core.device"),
    ("config", "set", "core.jobs", "2"),
    ("config", "unset", "core.jobs"),
    ("model", "list"),
    ("key", "list"),
    ("key", "show", "bench"),
    ("key", "export", "bench"),
    ("init",),
    ("status",),
    ("ls",),
    ("log",),
    ("log", "demo", "--receipt"),
    ("show", "demo"),
    ("verify",),
    ("audit",),
    ("diff", "demo", "other"),
    ("rev-parse", "demo"),
    ("cat", "demo"),
    ("tag", "first", "demo"),
    ("mv", "first", "second"),
    ("rm", "second"),
    ("pin", "demo"),
    ("unpin", "demo"),
    ("trust", "list"),
    ("trust", "add", "bench", "--dry-run"),
    ("gate", "list"),
    ("family", "hash", "--text", "What is 3 + 4?"),
    ("family", "list"),
    ("family", "show", "000000"),
    ("method", "show", "000000"),
    ("solve", "What is 3 + 4?"),
    ("context", "list"),
    ("context", "show", "corpus"),
    ("context", "at", "corpus", "3"),
    ("context", "search", "corpus", "source"),
    ("fsck",),
    ("gc", "--dry-run"),
    ("reindex",),
    ("du",),
    ("stats",),
    ("quota",),
    ("forget", "demo", "--dry-run"),
    ("remote", "list"),
    ("lock", "--dry-run"),
    ("__serve", "."),
    ("session", "list"),
    ("session", "slots", "none"),
    ("session", "stop", "none"),
    ("graft", "demo", "--session", "none"),
)
"""Every verb that needs no model. The order matters: what one command makes, the next removes."""

CHECKING = ("verify", "audit", "fsck")
"""Verbs whose time is that of all the store holds."""

WITH_MODEL = (
    "deposit",
    "ask",
    "graft",
    "replay",
    "logits",
    "prereg",
    "doctor",
    "bench",
    "__session",
)
"""Verbs that load a model, or look for one."""

WITH_REMOTE = ("bundle", "clone", "fetch", "pull", "push")
"""Verbs whose time is that of what they move."""


def environment(home: str) -> dict[str, str]:
    """The environment of one run, with a home of its own."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("KVG_", "XDG_"))}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**kept, "HOME": home, "PYTHONPATH": os.pathsep.join(sys.path[:1])}


def make_store(home: str, env: dict[str, str], *, empty: bool = False) -> None:
    """A store that trusts a key, with signed artifacts, one of them a block of a context."""
    from kvg.store import Store
    from kvg.trust import Keyring
    from tests.artifacts import deposit

    for words in (("init",), ("key", "new", "bench")):
        program = [sys.executable, "-c", PROGRAM, *words]
        subprocess.run(program, cwd=home, env=env, check=True, capture_output=True)
    keyring = Keyring(Path(home) / ".local/share/kvg/keys")
    store = Store.open(Path(home), keyring=keyring)
    key = keyring.load("bench")
    store.trust_first(key)
    if not empty:
        deposit(store, key, ref="demo")
        deposit(store, key, ref="other", ids=range(3, 40))
        deposit(store, key, ref="corpus/0001", ids=range(7, 60), uri="kvg:corpus#line=0,1")
    store.index.close()


def cpu_s(argv: Sequence[str], cwd: str, env: dict[str, str]) -> float:
    """CPU seconds of one run of ``argv``."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    nothing = subprocess.DEVNULL
    subprocess.run(
        argv, cwd=cwd, env=env, stdin=nothing, stdout=nothing, stderr=nothing, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("words", nargs="*")
    given = parser.parse_args()
    chosen = [c for c in COMMANDS if not given.words or c[0] in given.words]
    with tempfile.TemporaryDirectory() as folder:
        homes = {name: os.path.join(folder, name) for name in ("full", "empty")}
        for name, home in homes.items():
            os.mkdir(home)
            make_store(home, environment(home), empty=name == "empty")
            shutil.copytree(home, f"{home}.first")
        cases = {"import typer": ("full", [sys.executable, "-c", "import typer"])}
        for words in chosen:
            argv = [sys.executable, "-c", PROGRAM, *words]
            cases[" ".join(["kvg", *words])] = ("full", argv)
            if words[0] in CHECKING:
                cases[f"kvg {words[0]}, nothing to check"] = ("empty", argv)
        times: dict[str, list[float]] = {name: [] for name in cases}
        for turn in range(given.runs + 1):
            for home in homes.values():
                shutil.rmtree(home)
                shutil.copytree(f"{home}.first", home)
            for name, (where, argv) in cases.items():
                spent = cpu_s(argv, homes[where], environment(homes[where]))
                if turn:  # the first one only fills caches
                    times[name].append(spent)
    base = min(times["import typer"])
    for name, values in times.items():
        print(f"{name:<38} {1000 * min(values):6.1f} ms  {min(values) / base:4.2f}x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
