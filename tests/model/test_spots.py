"""Passes longer than the self-check's are looked at too: a token of one is the same alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional
from transformers import (
    AutoModelForCausalLM,
    BartConfig,
    BartForCausalLM,
    OPTConfig,
    OPTForCausalLM,
)

from kvg.errors import Bug, Incompatible, UsageError
from kvg.model import opening
from kvg.model.loader import adopt_model
from kvg.model.proofs import ProofCache, is_plain
from kvg.model.session import Session
from kvg.model.spots import NO_SPOT, Spot, Spots
from tests import models
from tests.model.test_census import Change, hooked, made

LONG = 64
IDS = [*range(200)]
SQUARE = made(200, 200)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with models.threads(1):
        yield


def session_with(folder: Path, change: Change) -> Session:
    module = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    hooked(module, change)
    model = adopt_model(module, device="cpu", attention="kvg_invariant", what="m")
    return opening.session_of(model, schedule=None)


def turned(x: torch.Tensor) -> torch.Tensor:
    """The tokens where a row's elements were, side by side."""
    return x.transpose(1, 2).contiguous()


MIXING: dict[str, Change] = {
    "mean over tokens laid side by side": lambda x: x + turned(x).mean(-1).unsqueeze(1),
    "mean of all in one row": lambda x: x + x.reshape(1, -1).mean(-1),
    "softmax over tokens": lambda x: x + functional.softmax(turned(x), -1).transpose(1, 2),
    "norm over tokens": lambda x: x + functional.layer_norm(turned(x), x.shape[1:2]).mT,
    "linear over tokens": lambda x: (
        x + functional.linear(turned(x), SQUARE[: x.shape[1], : x.shape[1]]).mT
    ),
    "a count of all": lambda x: x * (1 + (x.reshape(-1, x.shape[2]) > 0).sum() * 1e-3),
    "whole numbers of a column": lambda x: x * (1 + (x[0, :, :1] * 99).long().sum() * 1e-3),
    "a number taken out": lambda x: x * (1 + x[0, 0, 0].item()),
    "a sum in Python": lambda x: x + sum(x[:, n : n + 1] for n in range(x.shape[1])),
    "the token before": lambda x: torch.maximum(x, torch.cat([x[:, :1], x[:, :-1]], 1)),
    "the token after": lambda x: torch.maximum(x, torch.cat([x[:, 1:], x[:, -1:]], 1)),
    "the first in the last": lambda x: torch.cat([x[:, :-1], x[:, -1:] + x[:, :1]], 1),
    "by how many there are": lambda x: x * (1 + x.shape[1] / 100),
}


@pytest.mark.parametrize("name", MIXING)
def test_a_long_pass_that_mixes_tokens_is_refused(tiny: dict[str, Path], name: str) -> None:
    """In its pass, again when it is tried again; the slot goes on from where it was."""
    change = MIXING[name]
    session = session_with(tiny["llama"], lambda x: change(x) if x.shape[1] > LONG else x)
    slot, fresh = session.slot(), session.slot()
    session.run(slot, IDS[:50], [])
    for _ in range(2):
        with pytest.raises(Incompatible, match=r"bits alone: the model mixes tokens|not known to"):
            session.run(slot, IDS[50:], [])
    assert slot.length == 50
    after = session.run(slot, IDS[50:60], range(10))
    assert torch.equal(after, session.run(fresh, IDS[:60], range(50, 60)))


def test_rows_of_a_wide_batch_that_are_mixed_are_refused(tiny: dict[str, Path]) -> None:
    session = session_with(
        tiny["llama"], lambda x: x + sum(x[n : n + 1] for n in range(len(x))) * (len(x) > 2)
    )
    with pytest.raises(Incompatible, match="mixes tokens"):
        session.run_batch([session.slot() for _ in range(3)], [[5], [6], [7]], [0])


def test_each_length_is_looked_at_once() -> None:
    spots = Spots()
    assert spots.draw([20], 20) == NO_SPOT == spots.draw([20, 3], 20)
    assert spots.draw([21], 21).indices[-1] == 20
    found = []
    for width in (40, 33, 40, 50, 64, 65, 60, 1000, 999, 70, 128):
        is_new = spots.draw([width], width) != NO_SPOT
        found += [width] if is_new else []
        spots.passed([width], width)
    assert found == [40, 50, 64, 65, 1000, 70, 128]
    assert spots.draw([1] * 3, 1).indices == (0,), "as many sequences were not looked at"
    assert spots.draw([50, 50], 50) != NO_SPOT


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the passes that were looked at, as they were filled up."""
    found: list[int] = []
    check = Session._check_spot

    def seen(self: Session, *given: Any) -> None:
        found.append(len(given[2][0]))
        check(self, *given)

    monkeypatch.setattr(Session, "_check_spot", seen)
    return found


@pytest.mark.parametrize(("drawn", "again"), [(1, [128]), (0, [60, 128])])
def test_what_an_earlier_session_looked_at_is_seldom_looked_at_again(
    tiny: dict[str, Path],
    tmp_path: Path,
    looked_at: list[int],
    monkeypatch: pytest.MonkeyPatch,
    drawn: int,
    again: list[int],
) -> None:
    monkeypatch.setattr("kvg.model.spots.secrets.randbelow", lambda n: min(drawn, n - 1))
    model, proofs = models.load(tiny["llama"]), ProofCache(tmp_path / "proofs", ())
    first = opening.session_of(model, schedule=None, proofs=proofs)
    first.run(first.slot(), IDS[:60], [])
    assert looked_at == [60]
    assert proofs.recall_passes(model, first.engine) == {(1, 6): 60}
    looked_at.clear()
    second = opening.session_of(model, schedule=None, proofs=proofs)
    for n in (60, 50, 100):
        second.run(second.slot(), IDS[:n], [])
    assert looked_at == again
    assert proofs.recall_passes(model, first.engine) == {(1, 6): 60, (1, 7): 128}
    renewed = replace(proofs, is_renewed=True)
    assert renewed.recall_passes(model, first.engine) == {}


def test_a_pass_that_fails_is_remembered_by_nobody(
    tiny: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor are those that went before, in this session or in an earlier one."""
    model, proofs = models.load(tiny["llama"]), ProofCache(tmp_path / "proofs", ())
    session = opening.session_of(model, schedule=None, proofs=proofs)
    session.run(session.slot(), IDS[:50], [])
    assert proofs.recall_passes(model, session.engine)
    with monkeypatch.context() as patch, pytest.raises(Incompatible, match="mixes tokens"):
        patch.setattr("kvg.model.session.same_bits", lambda *_: False)
        session.run(session.slot(), IDS[:80], [])
    assert not proofs.recall_passes(model, session.engine)
    assert proofs.recall(model, session.engine) is None
    session.run(session.slot(), IDS[:30], [])
    assert proofs.recall_passes(model, session.engine) == {(1, 5): 30}


def test_nothing_is_remembered_of_a_model_that_is_not_as_its_library_made_it(
    tiny: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain one left a record for the very same shapes; a hook mixes tokens since."""
    proofs = ProofCache(tmp_path / "proofs", ())
    module = AutoModelForCausalLM.from_pretrained(tiny["llama"], dtype=torch.float32)
    model = adopt_model(module, device="cpu", attention="kvg_invariant", what="m")
    assert is_plain(module)
    opening.session_of(model, schedule=None, proofs=proofs)
    hook = module.model.layers[0].mlp.register_forward_hook(
        lambda _, __, out: out + out.cumsum(1) * 1e-3
    )
    assert not is_plain(module)
    with pytest.raises(Incompatible):
        opening.session_of(model, schedule=None, proofs=proofs)
    hook.remove()
    assert is_plain(module)
    layer = module.model.layers[0]
    monkeypatch.setattr(layer, "forward", layer.forward)
    assert not is_plain(module)
    monkeypatch.undo()
    monkeypatch.setattr(type(layer.mlp), "forward", lambda self, x: x)
    assert not is_plain(module)


def test_slots_of_other_lengths_in_one_pass_are_looked_at_first() -> None:
    """Bart's decoder takes positions from the cache, which has one length for all."""
    config = BartConfig(
        vocab_size=128,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        decoder_attention_heads=4,
        decoder_ffn_dim=96,
        max_position_embeddings=256,
        init_std=0.2,
        is_decoder=True,
        is_encoder_decoder=False,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        module = BartForCausalLM(config).eval()
    model = adopt_model(module, device="cpu", attention="kvg_invariant", what="m")
    with pytest.raises(Incompatible, match="how far the other texts of a batch are"):
        opening.session_of(model, schedule=None)


def test_a_frozen_slot_is_as_it_was_after_it_was_refused(tiny: dict[str, Path]) -> None:
    session = models.session(tiny["llama"])
    slot = session.slot()
    session.run(slot, IDS[:50], [])
    slot.state.freeze()
    for change in (
        lambda: session.logits_at(slot, 49, IDS[49]),
        lambda: session.resume(slot, IDS[49], [1]),
    ):
        with pytest.raises(Bug, match="frozen"):
            change()
        assert slot.length == 50 and slot.ids == IDS[:50]


@pytest.mark.parametrize("value", ["x", 3, None, [[1, 2]], [[1, 2, "3"]], ["123"], {"a": 1}])
def test_a_record_that_says_what_cannot_be_is_none(
    tiny: dict[str, Path], tmp_path: Path, value: Any
) -> None:
    model, proofs = models.load(tiny["llama"]), ProofCache(tmp_path / "proofs", ())
    session = opening.session_of(model, schedule=None, proofs=proofs)
    proofs._write(proofs._key(model, session.engine, "passes"), {"passes": value})
    assert proofs.recall_passes(model, session.engine) == {}


def test_what_no_pass_can_be_made_of_is_refused(tiny: dict[str, Path]) -> None:
    session = models.session(tiny["llama"])
    slot = session.slot()
    session.run(slot, [5, 6], [])
    top = session.model.vocabulary
    for ids, word in (([], "over no tokens"), ([top], f"token id {top}"), ([3, -1], "token id -1")):
        with pytest.raises(UsageError, match=word):
            session.run(slot, ids, [0])
    with pytest.raises(UsageError, match="in the batch twice"):
        session.run_batch([slot, slot], [[7], [8]], [0])
    assert slot.ids == [5, 6]


def test_a_batch_reaches_the_windows_end_where_positions_are_learned() -> None:
    """What pads the shorter row is at no position that the model has not."""
    config = OPTConfig(
        vocab_size=128,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=96,
        word_embed_proj_dim=64,
        max_position_embeddings=40,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = OPTForCausalLM(config)
    model = adopt_model(module, device="cpu", attention="kvg_invariant", what="m")
    session = opening.session_of(model, schedule=None)
    whole = session.run(session.slot(), IDS[:40], range(40))
    near, short = session.slot(), session.slot()
    session.run(near, IDS[:39], [])
    found = session.run_batch([near, short], [IDS[39:40], IDS[:30]], range(30))
    assert torch.equal(found[0, 0], whole[39]) and torch.equal(found[1], whole[:30])


def test_a_pass_that_was_refused_is_not_tried_again(
    tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other tokens would be drawn, and these may be spared."""

    def half(x: torch.Tensor) -> torch.Tensor:
        n = x.shape[1] // 2
        return torch.cat([x[:, :n] + x[:, n : n + 1], x[:, n:]], 1) if x.shape[1] > LONG else x

    session = session_with(tiny["llama"], half)
    drawn = iter([5, 150])
    monkeypatch.setattr(session._spots, "draw", lambda *_: Spot(0, (next(drawn), 199)))
    for _ in range(2):
        with pytest.raises(Incompatible, match="mixes tokens"):
            session.run(session.slot(), IDS, [])
    assert next(drawn) == 150


def test_logits_of_other_rows_than_were_asked_for_are_refused(
    tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some models take no notice of which ones are wanted."""
    session = models.session(tiny["llama"])
    forward = session.model.forward
    monkeypatch.setattr(
        type(session.model),
        "forward",
        lambda self, tokens, positions, cache, _: forward(
            tokens, positions, cache, torch.arange(tokens.shape[1])
        ),
    )
    with pytest.raises(Incompatible, match="logits of 5 tokens where those of 1 were"):
        session.run(session.slot(), IDS[:5], [4])
