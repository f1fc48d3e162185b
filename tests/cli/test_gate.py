"""``kvg gate``."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Run

needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
ASKED = ("--text", "What is 6 times 7?")
RIGHT = "python-assert:int(answer) == 42"


def test_kinds(kvg: Run) -> None:
    kinds = {item["kind"]: item for item in kvg("gate", "list", "--json").records}
    assert {"cmd", "pytest", "python-assert", "smt", "coq", "lean", "consistency"} == set(kinds)
    assert kinds["coq"]["proves"] == "formal" and kinds["consistency"]["available"] is False


@needs_bwrap
def test_every_gate_is_run_and_one_that_fails_decides(kvg: Run) -> None:
    Path("a.txt").write_text("42")
    done = kvg("gate", "run", RIGHT, "cmd:true", *ASKED, "--answer-file", "a.txt", "--json")
    assert done.code == 8
    assert [item["result"] for item in done.records] == ["PASSED", "FAILED"]
    assert done.records[0]["gate"] == "test:python-assert" and done.records[0]["reason"] is None
    assert kvg("gate", "run", RIGHT, *ASKED, "--answer", "42").code == 0
    assert kvg("gate", "run", RIGHT, *ASKED, "--answer", "41").code == 8
    shown = kvg("gate", "run", RIGHT, *ASKED, "--answer", "41", "-v").out
    assert "AssertionError" in shown and '"schema":"kvg.evidence/1"' in shown


@needs_bwrap
def test_the_key_folder_is_not_seen(kvg: Run, home: Path) -> None:
    kvg("key", "new", "one")
    key = home / ".local/share/kvg/keys/one.pem"
    Path("steal.py").write_text(f"print(open({str(key)!r}).read())")
    done = kvg("gate", "run", "cmd:python3 steal.py", *ASKED, "-v")
    assert done.code == 8 and "No such file" in done.out and "PRIVATE" not in done.out


def test_usage(kvg: Run) -> None:
    assert kvg("gate", "run").code == 2
    assert kvg("gate", "run", "what:ever", *ASKED).code == 2
    assert kvg("gate", "run", RIGHT).code == 2
    assert kvg("gate", "run", RIGHT, *ASKED, "--answer", "1", "--answer-file", "x").code == 2


def test_without_a_sandbox(kvg: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    refused = kvg("gate", "run", RIGHT, *ASKED, "--answer", "42", "--json")
    assert refused.code == 8 and "bubblewrap" in refused.error["message"]
    done = kvg("gate", "run", RIGHT, *ASKED, "--answer", "42", "--no-sandbox", "--json")
    assert done.code == 0
    assert done.record["configuration"][-1]["name"] == "sandbox: none"
    shown = kvg("gate", "run", RIGHT, *ASKED, "--answer", "42", "--no-sandbox")
    assert shown.out == "test:python-assert  PASSED  (sandbox: none)\n"
