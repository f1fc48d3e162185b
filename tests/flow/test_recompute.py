"""``kvg verify --recompute``: pages computed again from the tokens, and a signed lie is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kvg.flow.deposit import deposit
from kvg.flow.recompute import Recomputation
from kvg.flow.records.findings import Finding, VerifySummary
from kvg.flow.requests import DepositRequest
from kvg.flow.verify import verify
from kvg.model import state
from kvg.store import Store
from tests import models

N_TOKENS = 700  # three pages for each group of layers


@pytest.fixture(params=["invariant", "scheduled"])
def request_for(request: pytest.FixtureRequest, tiny: dict[str, Path]) -> DepositRequest:
    return DepositRequest(
        "t", text=models.text_of(tiny["llama"], N_TOKENS), reference=request.param
    )


@pytest.fixture
def lied(
    user: models.User, request_for: DepositRequest, monkeypatch: pytest.MonkeyPatch
) -> models.User:
    """The second page has one bit flipped before it was named and signed."""
    capture = state.capture_page

    def poisoned(*args: object, **kwargs: object) -> bytearray:
        raw = capture(*args, **kwargs)  # type: ignore[arg-type]
        if args[2] == 256:
            raw[-1] ^= 1
        return raw

    with monkeypatch.context() as patch:
        patch.setattr("kvg.model.state.capture_page", poisoned)
        patch.setattr("kvg.flow.deposit.prove_itself", lambda *_, **__: ())  # which would have told
        deposit(user.store, user.settings, request_for)
    return user


def checked(user: models.User, percent: float = 100) -> list[Finding | VerifySummary]:
    return list(verify(user.store, user.settings, recompute=percent))


def test_the_truth(user: models.User, request_for: DepositRequest) -> None:
    deposit(user.store, user.settings, request_for)
    (summary,) = checked(user)
    assert isinstance(summary, VerifySummary) and summary.differing == 0
    n_pages = len(user.store.manifest(user.store.resolve("t").digest).pages)
    assert isinstance(summary, VerifySummary) and summary.recomputed == n_pages
    (few,) = checked(user, 1)
    assert isinstance(few, VerifySummary) and few.recomputed == 1
    (none,) = verify(user.store, user.settings)
    assert isinstance(none, VerifySummary) and none.recomputed == 0


def test_a_signed_lie_is_found(lied: models.User) -> None:
    (alone,) = verify(lied.store, lied.settings)
    assert isinstance(alone, VerifySummary) and alone.signatures_ok and alone.bytes_ok
    *findings, summary = checked(lied)
    pages = lied.store.manifest(lied.store.resolve("t").digest).pages
    false = {page.digest for page in pages if page.start == 256}
    assert {item.object for item in findings if isinstance(item, Finding)} == false
    for item in findings:
        assert isinstance(item, Finding) and item.exit_code == 5
        assert "[256, 512) is not true" in item.message and "t: page" in item.message
    assert isinstance(summary, VerifySummary) and summary.recomputed == len(pages)
    assert summary.differing == len(false) > 0


def test_one_prefill_up_to_the_last_page(
    lied: models.User, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvg.model.session import Session

    lengths: list[int] = []
    prefill = Session.prefill

    def watched(self: Session, slot: object, ids: tuple[int, ...], **more: object) -> object:
        lengths.append(len(ids))
        return prefill(self, slot, ids, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Session, "prefill", watched)
    work = Recomputation(lied.store, lied.settings, 1, choose=lambda pages, n: pages[:n])
    assert list(work.check("t", lied.store.resolve("t").digest)) == []
    assert lengths == [256] and work.pages == 1


def test_without_the_model(lied: models.User) -> None:
    lied.store.config.remove_table("model", "tiny")
    finding, summary = checked(lied)
    assert isinstance(finding, Finding) and finding.exit_code == 7
    assert "t: not recomputed: no registered model" in finding.message
    assert isinstance(summary, VerifySummary) and summary.recomputed == 0


def test_what_does_not_stand_is_not_recomputed(lied: models.User) -> None:
    store: Store = lied.store
    page = store.manifest(store.resolve("t").digest)
    store.objects.remove(page.tokens.digest)
    *findings, summary = checked(lied)
    assert {item.exit_code for item in findings if isinstance(item, Finding)} == {5}
    assert isinstance(summary, VerifySummary) and summary.recomputed == 0


def test_on_the_command_line(user: models.User, kvg: Callable[..., models.User]) -> None:
    text = "a few words that are not many"
    deposit(user.store, user.settings, DepositRequest("t", text=text))
    found = kvg("verify", "--recompute", "5%", "--json")
    assert found.code == 0 and json.loads(found.out)["recomputed"] == 1
    assert "truth of 1 page recomputed" in kvg("verify", "t", "--recompute", "100").out
    for wrong in ("0", "101", "x%", "-5%"):
        assert kvg("verify", "--recompute", wrong).code == 2


def test_a_lie_is_counted_on_the_command_line(
    lied: models.User, kvg: Callable[..., models.User]
) -> None:
    told = kvg("verify", "--recompute", "100%")
    assert told.code == 5 and "NOT true" in told.out.splitlines()[-1]
    found = kvg("verify", "--recompute", "100%", "--json")
    last = json.loads(found.out.splitlines()[-1])
    assert 0 < last["differing"] < last["recomputed"]
