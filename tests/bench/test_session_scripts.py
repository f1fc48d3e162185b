"""The scripts about sessions and contexts give records that recheck takes."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import pytest
from rechecking.files import check_rows

from bench import abreast, session
from kvg.flow import deposit
from kvg.flow.context import create


def test_session(tiny: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deposits as they are; what is a process of its own in the shell is stood in for here."""
    answer = {"exact": True, "saved_tokens": 59, "first_token_ms": 3.5}
    monkeypatch.setattr(deposit, "open_model", deposit.open_model)
    took = iter(range(1, 99))

    def timed(argv: Sequence[str], *_: object) -> tuple[float, bytes]:
        return float(next(took)), json.dumps(answer).encode()

    monkeypatch.setattr(session, "timed", timed)
    inside = session.InProcess(tmp_path, tiny["llama"])
    rows = [
        inside.setup(),
        session.measure_deposits(inside, tiny["llama"], 60, 3),
        session.measure("", {}, 4),
    ]
    check_rows(json.loads(json.dumps(rows)), "session")
    assert rows[1]["tokens"] >= 60 and rows[2]["tokens"] == 60


def test_abreast(tiny: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("open_model", "lanes_for"):
        monkeypatch.setattr(create, name, getattr(create, name))
    asked = Namespace(model=tiny["llama"], blocks=2, tokens=24, rounds=1)
    check_rows(json.loads(json.dumps(list(abreast.measure(tmp_path, asked)))), "abreast")
