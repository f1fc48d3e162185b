"""A short guided run of one decoder gives records that recheck takes, and a fault ends it."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from rechecking.files import check_rows

from bench import fuzz_guided

pytestmark = pytest.mark.skipif(find_spec("atheris") is None, reason="atheris is missing")

BROKEN = """
import runpy, sys
from kvg.remote import layout
def parse(data, *, what, was=layout.parse_pointer):
    if b"\\xff" in data:
        raise KeyError("no error of ours")
    return was(data, what=what)
layout.parse_pointer = parse
runpy.run_path({process!r}, run_name="__main__")
"""


def test_a_short_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_guided, "EDITED", 50)
    runs = [fuzz_guided.run("pointer", way, 1, tmp_path / way) for way in fuzz_guided.WAYS]
    kept = fuzz_guided.corpus_record("pointer")
    rows = [fuzz_guided.machine(), *runs, kept]
    check_rows(json.loads(json.dumps(rows)), "fuzz-guided")
    for row in runs:
        assert row["executions"] > 100 and row["edges"] > 10
        assert row["lines"] > kept["lines_good"]


def test_an_error_that_is_not_ours_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = tmp_path / "process.py"
    process.write_text(BROKEN.format(process=str(fuzz_guided.PROCESS)))
    monkeypatch.setattr(fuzz_guided, "PROCESS", process)
    row = fuzz_guided.run("pointer", "edits", 20, tmp_path / "work")
    assert row["failures"] == 1
    (found,) = (tmp_path / "work").glob("failed-*")
    assert b"\xff" in found.read_bytes()
