"""Invariant execution: one text has one set of bits, however it is computed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from kvg.digest import Digest
from kvg.errors import Incompatible
from kvg.model.dtypes import TORCH_DTYPES, tensor_digest
from kvg.model.session import Session, Slot
from kvg.model.state import capture_page
from tests import models

N = 530
CUTS: dict[str, tuple[int, ...]] = {
    "two chunks": (400,),
    "pages": (256, 512),
    "one short of a page": (255, 511),
    "one past a page": (257, 513),
    "ragged": (1, 2, 5, 60, 255, 256, 257, 500, 529),
}


def text_ids(n: int) -> list[int]:
    noise = torch.Generator().manual_seed(7)
    return torch.randint(3, models.VOCABULARY, (n,), generator=noise).tolist()


def run_in_pieces(session: Session, ids: Sequence[int], cuts: Sequence[int]) -> tuple[Slot, Digest]:
    """The slot and the digest of the last logits after running ``ids`` cut at ``cuts``."""
    slot = session.slot()
    for a, b in zip((0, *cuts), (*cuts, len(ids)), strict=True):
        logits = session.run(slot, ids[a:b], [b - a - 1])
    return slot, tensor_digest(logits[0])


def state_digests(session: Session, slot: Slot) -> list[Digest]:
    """The digest of every page of ``slot``, sliding layers whole."""
    from kvg.digest import sha256

    return [
        sha256(capture_page(slot.state, group, a, min(a + 256, slot.length), what=group.name))
        for group in session.model.groups
        for a in range(0, slot.length, 256)
    ]


@pytest.fixture(params=models.FAMILIES)
def folder(request: pytest.FixtureRequest, tiny: dict[str, Path]) -> Path:
    return tiny[request.param]


@pytest.fixture(params=["BF16", "F32"])
def session(request: pytest.FixtureRequest, folder: Path) -> Session:
    return models.session(folder, request.param)


def test_any_chunking_gives_the_bits_of_one_shot(session: Session) -> None:
    ids = text_ids(N)
    whole, expected = run_in_pieces(session, ids, ())
    pages = state_digests(session, whole)
    for name, cuts in CUTS.items():
        slot, found = run_in_pieces(session, ids, cuts)
        assert found == expected, name
        assert state_digests(session, slot) == pages, name


def test_token_by_token_gives_the_bits_of_one_shot(session: Session) -> None:
    ids = text_ids(270)
    whole = session.slot()
    rows = session.run(whole, ids, range(len(ids)))
    for start, end in ((0, 20), (240, 270)):
        slot = session.slot()
        if start:
            session.run(slot, ids[:start], [])
        for position in range(start, end):
            logits = session.run(slot, [ids[position]], [0])
            assert torch.equal(logits[0], rows[position]), position
    assert state_digests(session, slot) == state_digests(session, whole)


def test_prefill_and_resume_give_the_bits_of_one_shot(session: Session) -> None:
    ids = text_ids(N)
    slot = session.slot()
    rows = session.run(session.slot(), ids, [99, 399, N - 1])
    done = session.prefill(slot, ids[:400], [99, 399])
    assert done.n_computed == 400
    assert torch.equal(done.logits[99], rows[0])
    witness, last = session.resume(slot, ids[399], ids[400:])
    assert torch.equal(witness, rows[1])
    assert torch.equal(last, rows[2])


def test_threads_change_no_bit(session: Session) -> None:
    ids = text_ids(N)
    found = []
    for n in (1, 2):
        with models.threads(n):
            slot, digest = run_in_pieces(session, ids, (300,))
            found.append((digest, state_digests(session, slot)))
    assert found[0] == found[1]


def test_a_batch_of_three_changes_no_bit(session: Session) -> None:
    texts = [text_ids(N)[:n] for n in (290, 45, 260)]
    texts[2] = texts[2][::-1]
    alone = [run_in_pieces(session, text, ()) for text in texts]
    slots = [session.slot() for _ in texts]
    session.run_batch(slots, [text[:-1] for text in texts], [])
    logits = session.run_batch(slots, [text[-1:] for text in texts], [0])
    for row, (slot, expected) in enumerate(alone):
        assert tensor_digest(logits[row, 0]) == expected
        assert state_digests(session, slots[row]) == state_digests(session, slot)
    rows = session.run_batch([session.slot() for _ in texts], texts, [289, 44, 259])
    assert [tensor_digest(rows[i, i]) for i in range(3)] == [digest for _, digest in alone]


def test_what_was_in_a_slot_before_changes_no_bit(session: Session) -> None:
    ids = text_ids(300)
    _, expected = run_in_pieces(session, ids, ())
    slot = session.slot()
    session.run(slot, ids[::-1] * 2, [0])
    slot.truncate(0)
    assert tensor_digest(session.run(slot, ids, [299])[0]) == expected
    slot.truncate(280)
    assert tensor_digest(session.run(slot, ids[280:], [19])[0]) == expected


def test_logits_are_close_to_the_stock_forward(session: Session, folder: Path) -> None:
    dtype = TORCH_DTYPES[session.model.dtype]
    stock = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa")
    ids = text_ids(300)
    with torch.inference_mode():
        expected = stock(input_ids=torch.tensor([ids])).logits[0].float()
    found = session.run(session.slot(), ids, range(len(ids))).float()
    scale = expected.std()
    worst = (found - expected).abs().max() / scale
    assert worst < (0.3 if dtype == torch.bfloat16 else 1e-4)


def test_nothing_stays_behind_after_an_exception(tiny: dict[str, Path]) -> None:
    session = models.session(tiny["llama"])
    module = session.model.module

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    hook = module.model.layers[1].register_forward_pre_hook(fail)
    slot = session.slot()
    with pytest.raises(KeyboardInterrupt):
        session.run(slot, [5, 6, 7], [2])
    hook.remove()
    assert slot.length == 0
    x = torch.ones(2, 3)
    assert torch.equal(x @ x.T, torch.full((2, 2), 3.0))
    assert session.run(slot, [5, 6, 7], [2]).isfinite().all()


def test_past_the_window(tiny: dict[str, Path]) -> None:
    session = models.session(tiny["llama"])
    slot = session.slot()
    with pytest.raises(Incompatible, match="past the model's window of 2,048"):
        session.run(slot, [5] * (models.POSITIONS + 1), [0])
    assert slot.length == 0


def test_an_operator_that_is_not_known_is_refused_by_name(tiny: dict[str, Path]) -> None:
    session = models.session(tiny["llama"])
    layer = session.model.module.model.layers[0]
    hook = layer.register_forward_hook(lambda *args: torch.cumsum(args[-1], -1))
    try:
        with pytest.raises(Incompatible, match="cumsum"):
            session.run(session.slot(), [5, 6], [1])
    finally:
        hook.remove()
