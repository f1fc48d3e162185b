"""Sizes of benchmarks that are told before a model is opened: too many, twice, past the window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvg.errors import UsageError
from kvg.flow.bench.setup import most_threads
from kvg.flow.settings import Settings
from tests import models

USAGE = (
    ("exactness --threads 9999", "processors"),
    ("exactness --threads 1,9999", "processors"),
    ("exactness --threads 0", "less than 1"),
    ("exactness --threads 2,2", "twice"),
    ("exactness --lengths 2,2", "twice"),
    ("exactness --lengths 0", "less than 1"),
    ("exactness --lengths abc", "not numbers"),
    ("exactness --lengths", "--lengths"),
    ("exactness --batch 3,3", "twice"),
    ("exactness --batch 0", "less than 1"),
    ("exactness --splits one-shot,one-shot", "twice"),
    ("exactness --splits thirds", "unknown"),
    ("speed --lengths 9,9", "twice"),
    ("speed --lengths 0", "less than 1"),
    ("select --lookups 500", "--lookups 500: less than 1000"),
    ("speed --lengths abc", "not numbers"),
    ("restore --lengths 32,32", "twice"),
    ("restore --lengths 0", "less than 1"),
    ("restore --lengths abc", "not numbers"),
    ("own-position --tokens 1", "2"),
)
PAST_THE_WINDOW = (
    "exactness --lengths 16,9999",
    "speed --lengths 16,9999",
    "speed --lengths 2048 --steps 1",
    "restore --lengths 9999",
    "own-position --tokens 9999",
    "own-position --key-tokens 9999",
    "energy --length 9999",
    "store --length 9999",
    "all --tokens 9999",
)


@pytest.fixture
def unopened(monkeypatch: pytest.MonkeyPatch) -> None:
    """No model may be opened."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a model was opened")

    monkeypatch.setattr("kvg.model.opening.open_session", refuse)


@pytest.mark.usefixtures("unopened")
@pytest.mark.parametrize(("words", "said"), USAGE)
def test_bad_sizes_are_refused_with_a_hint(kvg: Callable[..., Any], words: str, said: str) -> None:
    found = kvg("bench", *words.split())
    assert (found.code, found.out) == (2, ""), found
    assert said in found.err and "hint:" in found.err


@pytest.mark.usefixtures("unopened")
@pytest.mark.parametrize("words", PAST_THE_WINDOW)
def test_past_the_window_is_told_before_the_model_is_opened(
    kvg: Callable[..., Any], words: str
) -> None:
    found = kvg("bench", *words.split())
    assert (found.code, found.out) == (7, ""), found
    assert f"window of {models.POSITIONS:,}" in found.err and "hint:" in found.err


def test_as_many_threads_as_make_sense(monkeypatch: pytest.MonkeyPatch) -> None:
    for processors, most in ((1, 8), (2, 8), (64, 256)):
        monkeypatch.setattr("kvg.flow.bench.setup.n_processors", lambda n=processors: n)
        assert most_threads() == most


@pytest.mark.parametrize("place", ["flag", "config", "environment"])
def test_more_jobs_than_any_machine_needs(
    kvg: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    if place == "flag":
        found = kvg("ls", "--jobs", "9999")
    elif place == "config":
        found = kvg("config", "set", "core.jobs", "9999")
    else:
        with pytest.raises(UsageError, match="9999"):
            Settings(*[models.REPO] * 4, jobs=9999)
        return
    assert found.code == 2, found
    assert "9999" in found.err and "not 1 to 256" in found.err and "hint:" in found.err
