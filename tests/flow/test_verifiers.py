"""``trust threshold verifier=2``: two independent replays before anything is grafted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kvg.errors import Untrusted
from kvg.flow.deposit import deposit
from kvg.flow.graft import graft
from kvg.flow.records.computed import Graft
from kvg.flow.replay import replay
from kvg.flow.requests import DepositRequest, GraftRequest, ReplayRequest, Sampling
from kvg.flow.trust import trust_add, trust_revoke, trust_threshold
from kvg.model import state
from kvg.report import SilentReport
from kvg.trust import Keyring
from tests import models

ANSWER = GraftRequest("t", prompt=" so", sampling=Sampling(max_tokens=1))


@pytest.fixture
def strict(user: models.User, tiny: dict[str, Path]) -> models.User:
    """A store that asks for two verifiers, of which the user has both keys."""
    text = models.text_of(tiny["llama"], 300)
    deposit(user.store, user.settings, DepositRequest("t", text=text))
    first = Keyring(user.settings.keys).list()[0].name
    for name in ("one", "two"):
        Keyring(user.settings.keys).new(name)
        trust_add(user.store, user.settings, name, ["verifier"], [first])
    list(trust_threshold(user.store, user.settings, ["verifier=2"], [first]))
    return user


def signed(user: models.User, key: str) -> None:
    list(replay(user.store, user.settings, ReplayRequest(("t",), samples=1, sign=True, key=key)))


def answered(user: models.User) -> bool:
    (found,) = graft(user.store, user.settings, ANSWER)
    return isinstance(found, Graft) and found.exact


def test_two_replays_by_two_keys_open_the_way(strict: models.User) -> None:
    for key, n in (("one", 0), ("one", 1), ("two", 1)):
        with pytest.raises(Untrusted, match=f"replayed by {n} of 2 trusted verifiers"):
            answered(strict)
        signed(strict, key)
    assert answered(strict)


def test_one_that_finds_a_difference_closes_it(
    strict: models.User, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed(strict, "one")
    capture = state.capture_page

    def other(*args: object, **kwargs: object) -> bytearray:
        raw = capture(*args, **kwargs)  # type: ignore[arg-type]
        raw[-1] ^= 1
        return raw

    with monkeypatch.context() as patch:
        patch.setattr(state, "capture_page", other)
        signed(strict, "two")
    with pytest.raises(Untrusted, match="replayed by 1 of 2"):
        answered(strict)
    signed(strict, "two")
    with pytest.raises(Untrusted, match="a trusted key says that replay failed"):
        answered(strict)


class Told(SilentReport):
    """Keeps what it is warned of."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warning(self, text: str) -> None:
        self.warnings.append(text)


def test_a_replay_that_does_not_count_says_so(strict: models.User) -> None:
    report = Told()
    loud = replace(strict, settings=replace(strict.settings, report=report))
    signed(loud, "one")
    assert report.warnings == []
    first = Keyring(strict.settings.keys).list()[0].name
    signed(loud, first)
    (told,) = report.warnings
    assert "is no verifier" in told and "kvg trust add" in told and "--role verifier" in told
    trust_revoke(strict.store, strict.settings, "one", [first])
    signed(loud, "one")
    assert "is revoked" in report.warnings[1] and "--key KEY" in report.warnings[1]
