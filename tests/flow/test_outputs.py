"""Files that a verb is asked to write: a place that cannot be written to is told first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvg.flow.deposit import deposit
from kvg.flow.requests import DepositRequest
from tests import models

VERBS = (
    ("prereg", "create", "a", "--samples", "1", "-o"),
    ("logits", "a", "--out"),
    ("audit", "--html"),
    ("bundle", "create"),
    ("bench", "restore", "--lengths", "32", "--repeats", "1", "--plot"),
    ("bench", "context", "nothing", "--plot"),
    ("bench", "all", "--tokens", "32", "--plot"),
    ("bench", "store", "--length", "32", "--repeats", "1", "--plot"),
    ("bench", "energy", "--length", "32", "--runs", "1", "--plot"),
    ("bench", "select", "--families", "9", "--lookups", "1000", "--large", "0", "--plot"),
)


@pytest.fixture
def put(user: models.User, tiny: dict[str, Path]) -> models.User:
    text = models.text_of(tiny["llama"], 40)
    deposit(user.store, user.settings, DepositRequest("a", text=text))
    return user


@pytest.fixture
def idle(put: models.User, monkeypatch: pytest.MonkeyPatch) -> models.User:
    """No model may be opened: what is wrong is told before."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a model was opened")

    monkeypatch.setattr("kvg.model.opening.open_session", refuse)
    return put


def everything(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if "cache" not in path.parts}


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_a_place_that_cannot_be_written_to_is_told_before_anything_is_done(
    idle: models.User, kvg: Callable[..., Any], tmp_path: Path, verb: tuple[str, ...]
) -> None:
    (idle.folder / "folder.png").mkdir()
    (idle.folder / "plain").write_text("kept")
    before, size = everything(idle.folder), idle.store.log.size
    for place, code, word in (
        ("folder.png", 2, "a folder"),
        ("absent/x.png", 3, "no such folder"),
        (str(tmp_path / "absent" / "deep" / "x.png"), 3, "no such folder"),
        ("plain/x.png", 3, "no such folder"),
    ):
        found = kvg(*verb, place)
        assert found.code == code, (place, found.err)
        assert word in found.err and "hint:" in found.err, found.err
        assert found.out == ""
    assert everything(idle.folder) == before
    assert not (tmp_path / "absent").exists()
    assert idle.store.log.size == size
