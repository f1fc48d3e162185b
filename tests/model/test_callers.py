"""Sessions as they are used: slots side by side, threads of callers, state built by decoding."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from kvg.digest import Digest, sha256
from kvg.flow.deposit import deposit
from kvg.flow.requests import DepositRequest
from kvg.model import menus
from kvg.model.dtypes import tensor_digest
from kvg.model.exactness import captured
from kvg.model.invariant import ATTENTION_NAME, TileMenu
from kvg.model.loader import LoadedModel, adopt_model
from kvg.model.opening import session_of
from kvg.model.session import Session, Slot, lowest_maximum
from kvg.model.tiling import prove_tiles
from kvg.objects.verified import Verified
from kvg.verify import verify_artifact
from tests import models
from tests.model.test_invariant import text_ids


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with models.threads(1):
        yield


def page_digests(session: Session, slot: Slot) -> list[tuple[str, int, int, Digest]]:
    return [
        (page.group.name, page.start, page.end, sha256(page.raw))
        for page in captured(session, slot)
    ]


def written(session: Session, slot: Slot, first: torch.Tensor, n: int) -> tuple[list[int], Digest]:
    """What the model writes greedily, one token at a time, and the digest of its last logits."""
    logits, ids = first, []
    for _ in range(n):
        ids.append(lowest_maximum(logits))
        logits = session.run(slot, ids[-1:], [0])[0]
    return ids, tensor_digest(logits)


@pytest.mark.parametrize("family", models.FAMILIES)
def test_decoded_state_equals_prefilled_state_page_by_page(
    tiny: dict[str, Path], family: str
) -> None:
    session = models.session(tiny[family])
    ids = text_ids(300)
    decoded = session.slot()
    for token in ids:
        session.run(decoded, [token], [])
    prefilled = session.slot()
    session.prefill(prefilled, ids)
    assert page_digests(session, decoded) == page_digests(session, prefilled)


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_written_text_is_kept_as_if_it_had_been_read(tiny: dict[str, Path], family: str) -> None:
    session = models.session(tiny[family])
    ids = text_ids(250)
    slot = session.slot()
    first = session.run(slot, ids, [len(ids) - 1])[0]
    more, last = written(session, slot, first, 20)
    read = session.slot()
    again = session.run(read, [*ids, *more], [len(ids) + len(more) - 1])[0]
    assert tensor_digest(again) == last
    assert page_digests(session, read) == page_digests(session, slot)


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_two_slots_at_once_with_different_lengths(tiny: dict[str, Path], family: str) -> None:
    session = models.session(tiny[family])
    texts = [text_ids(513), text_ids(41)[::-1]]
    alone = []
    for text in texts:
        slot = session.slot()
        first = session.run(slot, text, [len(text) - 1])[0]
        alone.append((*written(session, slot, first, 12), page_digests(session, slot)))
    slots = [session.slot() for _ in texts]
    out = session.run_batch(slots, texts, [len(text) - 1 for text in texts])
    logits = [out[row, row] for row in range(2)]
    ids: list[list[int]] = [[], []]
    for _ in range(12):
        for row in range(2):
            ids[row].append(lowest_maximum(logits[row]))
        out = session.run_batch(slots, [row[-1:] for row in ids], [0])
        logits = [out[row, 0] for row in range(2)]
    for row, expected in enumerate(alone):
        found = (ids[row], tensor_digest(logits[row]), page_digests(session, slots[row]))
        assert found == expected


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_eight_threads_of_callers_on_one_session(tiny: dict[str, Path], family: str) -> None:
    session = models.session(tiny[family])
    shared = session.slot()
    session.run(shared, text_ids(200), [])

    def call(number: int) -> tuple[list[int], Digest, list[tuple[str, int, int, Digest]]]:
        if number % 2:
            slot, text = session.fork(shared), text_ids(40 + number)
        else:
            slot, text = session.slot(), text_ids(300 - 7 * number)
        first = session.run(slot, text, [len(text) - 1])[0]
        ids, last = written(session, slot, first, 10)
        return ids, last, page_digests(session, slot)

    expected = [call(number) for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(call, range(8))) == expected
    x = torch.ones(2, 3)
    assert torch.equal(x @ x.T, torch.full((2, 2), 3.0))


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_session_that_opens_on_a_model_disturbs_nobody_who_uses_it(
    tiny: dict[str, Path], family: str
) -> None:
    """The self-check has the same weights computed in the stock way, beside passes of others."""
    first = models.session(tiny[family])
    ids, begun, done = text_ids(30), Barrier(2), Event()

    def use() -> set[Digest]:
        found = set()
        begun.wait()
        while not done.is_set() or not found:
            found.add(tensor_digest(first.run(first.slot(), ids, [29])[0]))
        return found

    expected = tensor_digest(first.run(first.slot(), ids, [29])[0])
    with ThreadPoolExecutor(1) as pool:
        used = pool.submit(use)
        begun.wait()
        try:
            for _ in range(4):
                first.model.stock_logits(ids)
            second = session_of(first.model, schedule=None)
        finally:
            done.set()
        assert used.result() == {expected}
    assert tensor_digest(second.run(second.slot(), ids, [29])[0]) == expected


Written = tuple[list[int], Digest, list[tuple[str, int, int, Digest]]]


def continued(session: Session, slot: Slot, text: list[int], n: int) -> Written:
    """``text`` appended to ``slot``, then ``n`` tokens written, all of it alone."""
    first = session.run(slot, text, [len(text) - 1])[0]
    ids, last = written(session, slot, first, n)
    return ids, last, page_digests(session, slot)


def fresh(session: Session, verified: Verified, text: list[int], n: int) -> Written:
    """The same from a slot of its own that computed every token."""
    slot = session.slot()
    session.prefill(slot, verified.ids)
    return continued(session, slot, text, n)


@pytest.fixture(params=["llama", "gemma3"])
def grafts(
    request: pytest.FixtureRequest, tmp_path: Path, tiny: dict[str, Path]
) -> tuple[Session, list[Verified], list[Slot]]:
    """Two artifacts of a store, a long and a short one, and a frozen slot of each."""
    user = models.User.make(tmp_path / "user")
    user.add("tiny", tiny[request.param])
    session, found = models.session(tiny[request.param]), []
    for name, n in (("long", 513), ("short", 41)):
        text = models.text_of(tiny[request.param], n)
        made = deposit(user.store, user.settings, DepositRequest(name, text=text))
        found.append(verify_artifact(user.store, made.digest))
        session.check_engine(found[-1])
    bases = [session.shared(verified)[0] for verified in found]
    assert all(base.state.is_frozen for base in bases)
    return session, found, bases


def shares_memory(slot: Slot) -> bool:
    """Whether ``slot`` lies in a copy-on-write mapping of an anonymous file."""
    address = next(iter(slot.state.keys.values())).data_ptr()
    for line in Path("/proc/self/maps").read_text(errors="replace").splitlines():
        span, rights, *_ = line.split()
        first, last = (int(part, 16) for part in span.split("-"))
        if first <= address < last:
            return "kvg-state" in line and rights.endswith("p")
    return False


def test_slots_of_one_graft_at_once_with_different_lengths(
    grafts: tuple[Session, list[Verified], list[Slot]],
) -> None:
    """Two slots of a long artifact and one of a short one, in one batch, against fresh ones."""
    session, found, bases = grafts
    held = [page_digests(session, base) for base in bases]
    starts = [0, 1, 0]
    texts = [text_ids(7), text_ids(60)[::-1], text_ids(31)[::-1]]
    pairs = list(zip(starts, texts, strict=True))
    expected = [fresh(session, found[start], text, 12) for start, text in pairs]
    slots = [session.fork(bases[start]) for start in starts]
    assert all(shares_memory(slot) for slot in slots)
    out = session.run_batch(slots, texts, [len(text) - 1 for text in texts])
    logits = [out[row, row] for row in range(3)]
    ids: list[list[int]] = [[], [], []]
    for _ in range(12):
        for row in range(3):
            ids[row].append(lowest_maximum(logits[row]))
        out = session.run_batch(slots, [row[-1:] for row in ids], [0])
        logits = [out[row, 0] for row in range(3)]
    assert [
        (ids[row], tensor_digest(logits[row]), page_digests(session, slot))
        for row, slot in enumerate(slots)
    ] == expected
    assert [page_digests(session, base) for base in bases] == held


def test_eight_threads_of_callers_on_shared_grafts(
    grafts: tuple[Session, list[Verified], list[Slot]],
) -> None:
    session, found, bases = grafts
    held = [page_digests(session, base) for base in bases]
    texts = [text_ids(20 + 7 * number)[:: -1 if number % 3 else 1] for number in range(8)]
    expected = [fresh(session, found[n % 2], text, 10) for n, text in enumerate(texts)]
    together = Barrier(8)

    def call(number: int) -> Written:
        together.wait()
        slot = session.fork(bases[number % 2])
        assert shares_memory(slot)
        return continued(session, slot, texts[number], 10)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(call, range(8))) == expected
    assert [page_digests(session, base) for base in bases] == held


def test_a_thread_that_fails_disturbs_no_other(tiny: dict[str, Path]) -> None:
    session = models.session(tiny["llama"])
    ids = text_ids(120)
    expected = tensor_digest(session.run(session.slot(), ids, [119])[0])

    def fail(_: object, args: tuple[torch.Tensor, ...]) -> None:
        if args[0].shape[:2] == (1, 1):
            raise IndexError

    failing = session.model.module.model.layers[1].mlp.register_forward_pre_hook(fail)

    def call(number: int) -> Digest | None:
        if number % 2:
            with pytest.raises(IndexError):
                session.run(session.slot(), [5], [0])
            return None
        return tensor_digest(session.run(session.slot(), ids, [119])[0])

    try:
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(call, range(8))) == [expected, None] * 4
    finally:
        failing.remove()


def test_threads_that_came_after_a_session_was_opened_change_no_bit() -> None:
    """A row that is a tile of its own is one product, which two threads cut otherwise than one."""
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=7 * 64,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=7,
        num_key_value_heads=1,
        max_position_embeddings=512,
    )
    torch.manual_seed(0)
    model = adopt_model(
        LlamaForCausalLM(config), device="cpu", attention=ATTENTION_NAME, what="seven heads"
    )
    session = session_of(model, schedule=None)
    ids = [7 * i % 64 for i in range(280)]
    whole = session.run(session.slot(), ids, range(270, 280))
    for n_threads in (2, 3):
        with models.threads(n_threads):
            slot = session.slot()
            session.run(slot, ids[:270], [])
            decoded = torch.cat([session.run(slot, [token], [0]) for token in ids[270:]])
            assert torch.equal(decoded, whole)
            assert torch.equal(session.run(session.slot(), ids, range(270, 280)), whole)


def test_tiles_are_proved_once_for_each_number_of_threads(
    tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = session_of(models.load(tiny["llama"], "BF16", ATTENTION_NAME), schedule=None)
    proved: list[int] = []

    def prove(model: LoadedModel) -> TileMenu:
        proved.append(torch.get_num_threads())
        return prove_tiles(model)

    monkeypatch.setattr(menus, "prove_tiles", prove)
    for n_threads in (1, 2, 1, 2, 2):
        with models.threads(n_threads):
            session.run(session.slot(), [1, 2, 3], [])
    assert proved == [2]
