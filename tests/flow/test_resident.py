"""A resident model in this process: shared state, numbered slots, the limit on memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvg.errors import Corrupt, Incompatible, Interrupted, NoSpace, NotFound
from kvg.flow.deposit import deposit
from kvg.flow.graft import graft
from kvg.flow.logits import logits
from kvg.flow.records.computed import Graft
from kvg.flow.registered import identified, registered_model, tokenizer_of
from kvg.flow.requests import DepositRequest, GraftRequest, LogitsRequest, Sampling
from kvg.flow.resident import Resident, Seat
from kvg.model.opening import session_of
from tests import models

MIB = 1 << 20
REFS = ("a", "b", "c")


@pytest.fixture
def put(user: models.User, tiny: dict[str, Path]) -> models.User:
    text = models.text_of(tiny["llama"], 330)
    for number, ref in enumerate(REFS):
        deposit(user.store, user.settings, DepositRequest(ref, text=text[9 * number :]))
    return user


Make = Callable[..., Resident]


@pytest.fixture
def make(put: models.User, tiny: dict[str, Path]) -> Make:
    def made(limit_bytes: int = 64 * MIB, n_slots: int = 2) -> Resident:
        model = registered_model(put.store, "tiny")
        files = identified(put.store, put.settings, model)
        return Resident(
            "desk",
            put.store.root,
            model,
            files,
            session_of(models.load(tiny["llama"]), schedule=None),
            tokenizer_of(put.settings, model, files),
            n_slots=n_slots,
            limit_bytes=limit_bytes,
            model_bytes=MIB,
        )

    return made


def run(
    user: models.User,
    resident: Resident,
    ref: str,
    *,
    index: int | None = None,
    most: int = 4,
    **more: object,
) -> Graft:
    with resident.turns.held(threading.Event()), Seat(resident, index) as seat:
        settings = replace(user.settings, seat=seat)
        asked = GraftRequest(ref, sampling=Sampling(most), **more)  # type: ignore[arg-type]
        (found,) = graft(user.store, settings, asked)
    assert isinstance(found, Graft)
    return found


def test_what_is_restored_once_is_shared_and_each_graft_is_proved(
    put: models.User, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    resident = make()
    reads, proofs = [], []
    from kvg.model.session import Session
    from kvg.objects.verified import Verified

    stock, check = Verified.read_page, Session.check_witness
    monkeypatch.setattr(Verified, "read_page", lambda s, p: reads.append(p) or stock(s, p))
    monkeypatch.setattr(Session, "check_witness", lambda *a: proofs.append(a) or check(*a))
    (alone,) = graft(put.store, put.settings, GraftRequest("a", prompt=" so", sampling=Sampling(4)))
    n_alone, n_proofs = len(reads), len(proofs)
    found = [run(put, resident, "a", prompt=" so") for _ in range(3)]
    assert len(reads) == 2 * n_alone, "the pages are read once for all three"
    assert len(proofs) == n_proofs + 3, "each is proved by itself"
    for record in found:
        assert (record.text, record.logits_digest) == (alone.text, alone.logits_digest)  # type: ignore[attr-defined]
        assert record.restored_bytes == alone.restored_bytes  # type: ignore[attr-defined]


def test_memory_is_given_back(put: models.User, make: Make) -> None:
    resident = make()
    run(put, resident, "a")
    after_one = resident.state_bytes
    for _ in range(3):
        run(put, resident, "a", prompt=" so")
    assert resident.state_bytes == after_one, "only what is shared stays"
    run(put, resident, "a", index=0)
    assert resident.state_bytes > after_one
    resident.clear(0)
    assert resident.state_bytes == after_one


def test_a_slot_counts_what_is_in_it(put: models.User, make: Make) -> None:
    """Not what a request might have made, nor what one that failed asked for."""
    resident = make()
    run(put, resident, "a", index=0, prompt=" so", most=1000)
    held = resident.held[0]
    assert held is not None
    for _ in range(3):
        own = len(held.slot.ids) - held.end
        assert held.lease.size_bytes == resident._size(own)
        run(put, resident, "a", index=0, at=held.position, prompt=" and", most=1_000_000)
    before = resident.state_bytes
    for prompt, error in ((" word" * 3000, Incompatible), (" so", NotFound)):
        with pytest.raises(error):
            ref = "a" if error is Incompatible else "none"
            run(put, resident, ref, index=0, at=held.position, prompt=prompt, most=2)
        assert resident.state_bytes == before


def test_past_the_limit_it_is_refused_and_the_rest_goes_on(put: models.User, make: Make) -> None:
    resident = make()
    run(put, resident, "a", index=0)
    needed = resident.state_bytes
    resident = make(MIB + needed + 60_000)
    run(put, resident, "a", index=0)
    before = resident.state_bytes
    with pytest.raises(NoSpace, match="are in use") as caught:
        run(put, resident, "b", index=1)
    assert "--clear" in (caught.value.hint or "")
    assert resident.state_bytes == before, "what was refused takes nothing"
    assert resident.held[0] is not None and resident.held[1] is None
    with pytest.raises(NoSpace):
        run(put, resident, "a", most=1500)
    assert run(put, resident, "a", index=0).exact
    resident.clear(0)
    assert run(put, resident, "b", index=1).exact


def test_what_nobody_uses_makes_room(put: models.User, make: Make) -> None:
    resident = make()
    run(put, resident, "a")
    one = resident.state_bytes
    resident = make(MIB + one + one // 2)
    digests = {ref: run(put, resident, ref).logits_digest for ref in REFS}
    assert len(set(digests.values())) == 3
    assert resident.state_bytes <= one + one // 4
    assert run(put, resident, "a").logits_digest == digests["a"]


def test_a_page_that_is_corrupt_is_found_and_leaves_nothing(put: models.User, make: Make) -> None:
    resident = make()
    manifest = put.store.manifest(put.store.resolve("b").digest)
    path = put.store.objects.stored_path(manifest.pages[0].digest)
    path.chmod(0o644)
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    with pytest.raises(Corrupt):
        run(put, resident, "b", index=0)
    assert resident.state_bytes == 0 and resident.held == [None, None]
    assert run(put, resident, "a", index=0).exact


def test_a_witness_that_fails_leaves_the_slot_as_it_was(
    put: models.User, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    resident = make()
    run(put, resident, "a", index=0)
    held = resident.held[0]

    def fails(*_: object) -> None:
        raise Incompatible("witness failed")

    from kvg.model.session import Session

    monkeypatch.setattr(Session, "check_witness", fails)
    with pytest.raises(Incompatible):
        run(put, resident, "b", index=0)
    assert resident.held[0] is held
    at = held.position  # type: ignore[union-attr]
    with pytest.raises(Incompatible, match="witness"):
        run(put, resident, "a", index=0, at=at)
    assert held.position == at, "nothing was added unproved"  # type: ignore[union-attr]


def test_cancelled_before_its_first_pass(put: models.User, make: Make) -> None:
    resident = make()
    run(put, resident, "a")
    before = resident.state_bytes
    cancelled = threading.Event()
    with (
        pytest.raises(Interrupted),
        resident.turns.held(cancelled),
        Seat(resident, 0) as seat,
    ):
        cancelled.set()
        list(graft(put.store, replace(put.settings, seat=seat), GraftRequest("a")))
    assert resident.held[0] is None and resident.state_bytes == before


def test_logits_leave_their_text_in_the_slot(put: models.User, make: Make) -> None:
    resident = make()
    with resident.turns.held(threading.Event()), Seat(resident, 1) as seat:
        settings = replace(put.settings, seat=seat)
        found = logits(put.store, settings, LogitsRequest("a", prompt=" so"))
    assert found.digest == logits(put.store, put.settings, LogitsRequest("a", prompt=" so")).digest
    assert resident.held[1] is not None
    assert resident.held[1].position == len(resident.held[1].slot.ids) > resident.held[1].end


def test_slots_that_are_not_there(make: Make) -> None:
    resident = make()
    for index in (-1, 2, 10**9):
        with pytest.raises(NotFound):
            Seat(resident, index)
        with pytest.raises(NotFound):
            resident.clear(index)


def sliding(user: models.User, folder: Path, n_tokens: int) -> Resident:
    """A session of a model with sliding layers, in whose store ``t`` is a text of ``n_tokens``."""
    user.add("tiny", folder)
    text = models.text_of(folder, n_tokens)
    deposit(user.store, user.settings, DepositRequest("t", text=text))
    model = registered_model(user.store, "tiny")
    files = identified(user.store, user.settings, model)
    return Resident(
        "desk",
        user.store.root,
        model,
        files,
        session_of(models.load(folder), schedule=None),
        tokenizer_of(user.settings, model, files),
        n_slots=1,
        limit_bytes=64 * MIB,
        model_bytes=0,
    )


@pytest.mark.parametrize("family", ["gemma3", "mistral"])
@pytest.mark.parametrize(
    "asked", [{"cut_points": (150,)}, {"cut_points": (1,)}, {"page_tokens": 512}]
)
def test_what_a_graft_did_not_bring_is_not_deposited(
    tmp_path: Path, tiny: dict[str, Path], family: str, asked: dict[str, Any]
) -> None:
    """Before what its windows reached a grafted slot holds zeros: no page and no witness is made
    of them."""
    user = models.User.make(tmp_path / family)
    resident = sliding(user, tiny[family], 560)
    run(user, resident, "t", index=0, prompt=" so it went on")
    with resident.turns.held(threading.Event()), Seat(resident, 0) as seat:
        settings = replace(user.settings, seat=seat)
        before = user.store.log.size
        with pytest.raises(Incompatible, match="was grafted with"):
            deposit(user.store, settings, DepositRequest("untrue", slot=True, **asked))
        assert user.store.log.size == before and user.store.ref("untrue") is None
        deposit(user.store, settings, DepositRequest("true", slot=True, cut_points=(550,)))
    assert user.store.ref("true") is not None


@pytest.mark.parametrize("family", ["gemma3", "mistral"])
def test_a_conversation_on_sliding_layers(
    tmp_path: Path, tiny: dict[str, Path], family: str
) -> None:
    """Past the window by decoding: what is deposited is what a fresh prefill gives."""
    user = models.User.make(tmp_path / family)
    resident = sliding(user, tiny[family], 290)
    run(user, resident, "t", index=0, most=models.WINDOW + 60, prompt=" so it went on")
    with resident.turns.held(threading.Event()), Seat(resident, 0) as seat:
        settings = replace(user.settings, seat=seat)
        made = deposit(user.store, settings, DepositRequest("talk", slot=True))
    again = user.store.manifest(made.digest)
    ids = tuple(user.store.ids(again, what="talk"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kvg.flow.sources.Source.ids", lambda *_, **__: list(ids))
        user.store.index.close()
        other = models.User.make(tmp_path / "other")
        other.add("tiny", tiny[family])
        fresh = deposit(other.store, other.settings, DepositRequest("talk", text="x"))
    assert fresh.digest == made.digest, "the same manifest, page by page"
