"""What a command that needs no model may import: nothing heavy, and of kvg only its share.

Time is measured by ``bench/startup.py``; here it is modules that are counted, which is exact.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.startup import COMMANDS, WITH_MODEL, WITH_REMOTE, environment, make_store
from kvg.cli.table import VERBS

CODES = {
    ("nonsense",): 2,
    ("family", "show", "000000"): 3,
    ("method", "show", "000000"): 3,
    ("solve", "What is 3 + 4?"): 3,
    ("session", "slots", "none"): 3,
    ("session", "stop", "none"): 3,
    ("graft", "demo", "--session", "none"): 3,
}
"""Commands of the list that end with another code than 0: there is nothing that they ask for."""

HEAVY = {
    "torch",
    "transformers",
    "tokenizers",
    "numpy",
    "pydantic",
    "rich",
    "huggingface_hub",
    "triton",
    "tomlkit",
}
WRITES_CONFIG = {("config", "set", "core.jobs", "2"), ("config", "unset", "core.jobs")}
"""Commands that edit a configuration, for which tomlkit is there."""

PARSED = {
    ("--help",),
    ("deposit", "--help"),
    ("help", "ask"),
    ("nonsense",),
    ("completion", "bash"),
    ("__complete", "kvg", "sh"),
}
"""Command lines that need the parser; any other is read without it."""

MOST_KVG = 111
"""The most modules of kvg that any of these commands may load; a reader loads about 75."""

PROGRAM = """
import json, os, sys
given, report = json.loads(sys.argv[1]), os.dup(1)
null = os.open(os.devnull, os.O_RDWR)
os.dup2(null, 1), os.dup2(null, 2)
for words in given:
    child = os.fork()
    if not child:
        from kvg.cli.main import main
        code = main(words)
        row = {"words": words, "code": code, "modules": sorted(sys.modules)}
        os.write(report, (json.dumps(row) + "\\n").encode())
        os._exit(0)
    os.waitpid(child, 0)
"""
"""Runs each command in a child; tells what the child imported."""

Rows = dict[tuple[str, ...], tuple[int, frozenset[str]]]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    home = str(tmp_path_factory.mktemp("home"))
    env = environment(home)
    make_store(home, env)
    program = [sys.executable, "-c", PROGRAM, json.dumps(COMMANDS)]
    done = subprocess.run(program, cwd=home, env=env, check=True, capture_output=True)
    found = map(json.loads, done.stdout.splitlines())
    return {tuple(row["words"]): (row["code"], frozenset(row["modules"])) for row in found}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_without_a_model_imports_little(rows: Rows, words: tuple[str, ...]) -> None:
    code, modules = rows[words]
    assert code == CODES.get(words, 0)
    heavy = HEAVY - {"tomlkit"} if words in WRITES_CONFIG else HEAVY
    assert not heavy & modules
    assert ("typer" in modules) == (words in PARSED)
    own = [name for name in modules if name.partition(".")[0] == "kvg"]
    assert len(own) <= MOST_KVG, own


@pytest.mark.parametrize("words", [("status",), ("ls",), ("log",), ("rev-parse", "demo")])
def test_a_reader_loads_no_writer(rows: Rows, words: tuple[str, ...]) -> None:
    writers = {"kvg.store.publish", "kvg.store.pending", "kvg.store.fold", "kvg.store.sweep"}
    checks = {"kvg.verify.check", "kvg.verify.fsck", "kvg.log.receipts", "kvg.problem.method"}
    unwanted = writers | checks | {"tomllib", "rfc8785"}
    assert unwanted & rows[words][1] == set()


def test_every_verb_is_measured() -> None:
    measured = {words[0] for words in COMMANDS} | set(WITH_MODEL) | set(WITH_REMOTE)
    assert {verb.name for verb in VERBS} <= measured


def test_the_bench_runs(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    program = [sys.executable, str(root / "bench" / "startup.py"), "--runs", "1", "version"]
    done = subprocess.run(program, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert "kvg version" in done.stdout
