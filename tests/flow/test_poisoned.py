"""The rows of the attack table that take a model: pages that are signed and not true.

The witness still fits and every signature and byte is right, so that ``verify`` and a graft are
content. A replay and a recomputation are not.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kvg.flow.deposit import deposit
from kvg.flow.graft import graft
from kvg.flow.records.computed import ReplaySummary
from kvg.flow.records.findings import Finding, VerifySummary
from kvg.flow.replay import replay
from kvg.flow.requests import DepositRequest, GraftRequest, ReplayRequest, Sampling
from kvg.flow.verify import verify
from kvg.model import state
from tests import models

Poison = Callable[[bytearray], None]


def faintest(raw: bytearray) -> int:
    """Where the least of the last thousand values begins, which no logit hangs on."""
    places = range(len(raw) - 2000, len(raw), 2)
    return min(places, key=lambda at: int.from_bytes(raw[at : at + 2], "little") & 0x7FFF)


def flip_a_last_digit(raw: bytearray) -> None:
    """The least bit of a value."""
    raw[faintest(raw)] ^= 0x01


def flip_an_exponent(raw: bytearray) -> None:
    """A value, twice or half as large."""
    raw[faintest(raw)] ^= 0x80


@pytest.mark.parametrize("poison", [flip_a_last_digit, flip_an_exponent])
@pytest.mark.parametrize("reference", ["invariant", "scheduled"])
def test_a_poisoned_page_whose_witness_still_fits(
    user: models.User,
    tiny: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    poison: Poison,
    reference: str,
) -> None:
    honest = state.capture_page

    def poisoned(*args: object, **kwargs: object) -> bytearray:
        raw = honest(*args, **kwargs)  # type: ignore[arg-type]
        if args[2] == 0:
            poison(raw)
        return raw

    text = models.text_of(tiny["llama"], 600)
    with monkeypatch.context() as patch:
        patch.setattr("kvg.model.state.capture_page", poisoned)
        patch.setattr("kvg.flow.deposit.prove_itself", lambda *_, **__: ())  # which would have told
        deposit(user.store, user.settings, DepositRequest("bad", text=text, reference=reference))
    (alone,) = verify(user.store, user.settings)
    assert isinstance(alone, VerifySummary) and alone.bytes_ok and alone.signatures_ok
    sampling = Sampling(max_tokens=1)
    *_, grafted = graft(
        user.store, user.settings, GraftRequest("bad", prompt=" so", sampling=sampling)
    )
    assert grafted.status == "GRAFT_HIT" and grafted.exact  # type: ignore[union-attr]
    *_, summary = replay(user.store, user.settings, ReplayRequest(("bad",), samples=2))
    assert isinstance(summary, ReplaySummary) and summary.exit_code == 11
    assert summary.pages_equal < summary.pages
    *findings, _ = verify(user.store, user.settings, recompute=100)
    false = {page.digest for page in user.store.manifest(user.store.resolve("bad").digest).pages
             if page.start == 0}  # fmt: skip
    assert {item.object for item in findings if isinstance(item, Finding)} == false
    assert {item.code for item in findings if isinstance(item, Finding)} == {5}
