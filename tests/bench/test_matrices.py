"""What the tests of crashes count becomes records that recheck takes; an edited row is found."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rechecking.files import check_rows
from rechecking.rows import Wrong

from bench.matrices import sums
from tests.conftest import pytest_terminal_summary
from tests.store.faults import struck
from tests.store.power import tried

MACHINE = {"type": "bench-machine", "bench": "crash", "cpu": "one", "cores": 2}


def properties() -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []

    def note(name: str, value: object) -> None:
        found.append((name, value))

    struck(note, "crash matrix", "deposit", 7, 5, {"kill -9": 7, "no space": 7})
    struck(note, "exchange matrix", "push, killed", 9, 4, {"kill -9": 9})
    struck(note, "exchange matrix", "push, other faults", 9, 4, {"no space": 5, "i/o error": 4})
    tried(note, "deposit", 40, 24)
    return found


class Reporter:
    """Of one test that passed."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def getreports(self, _kind: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(user_properties=properties())]

    def write_line(self, line: str) -> None:
        self.lines.append(line)


def test_counts_are_printed_and_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVG_RECORDS", str(tmp_path / "records"))
    reporter = Reporter()
    pytest_terminal_summary(reporter)  # type: ignore[arg-type]
    assert "crash matrix: 1 rows, 14 points, none failed" in reporter.lines
    assert "  push, killed: 9 steps, 4 states, 9 points" in reporter.lines
    rows = list(map(json.loads, (tmp_path / "records").read_text().splitlines()))
    rows = [MACHINE, *rows, sums(rows, 1.5)]
    check_rows(rows, "crash")
    assert rows[-1]["verbs"] == 2 and rows[-1]["points"] == 32 and rows[-1]["power_tried"] == 24
    assert rows[-1]["kinds"] == {"kill -9": 16, "no space": 12, "i/o error": 4}


@pytest.mark.parametrize(
    ("number", "field", "value"),
    [
        (0, "kinds", {"kill -9": 8, "no space": 7}),
        (1, "points", 10),
        (2, "kinds", {"kill -9": 5, "i/o error": 4}),
        (3, "tried", 41),
    ],
)
def test_a_row_that_is_edited_is_found(number: int, field: str, value: object) -> None:
    rows = [value for name, value in properties() if name == "record"]
    end = sums(rows, 1.5)
    rows[number] = {**rows[number], field: value}
    with pytest.raises(Wrong):
        check_rows([MACHINE, *rows, end], "crash")
