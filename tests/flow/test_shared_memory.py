"""Slots that graft one stored artifact: its memory once, until one of them writes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from kvg.digest import sha256
from kvg.flow.deposit import deposit
from kvg.flow.graft import graft
from kvg.flow.records.computed import Graft
from kvg.flow.registered import identified, registered_model, tokenizer_of
from kvg.flow.requests import DepositRequest, GraftRequest, Sampling
from kvg.flow.resident import Resident, Seat
from kvg.model.exactness import captured
from kvg.model.opening import session_of
from kvg.model.session import Session
from kvg.verify import verify_artifact
from tests import models
from tests.model.test_memory import memory_bytes

TOKENS = 1500
LAYERS, KV_HEADS, HEAD_DIM = 8, 8, 128
PAGE_BYTES = 4096
MIB = 1 << 20
TAIL_BYTES = LAYERS * 2 * KV_HEADS * PAGE_BYTES
"""What the first token after a graft copies: a page of memory of every head's keys and values."""


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that computes little and keeps 32 KiB for each token."""
    config = LlamaConfig(
        vocab_size=models.VOCABULARY,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=LAYERS,
        num_attention_heads=KV_HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=models.POSITIONS,
        initializer_range=0.15,
        pad_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        module = LlamaForCausalLM(config)
    return models.write_model(tmp_path_factory.mktemp("wide"), module)


@pytest.fixture(scope="module")
def opened(wide: Path) -> Session:
    with models.threads(1):
        return session_of(models.load(wide), schedule=None)


Make = Callable[[], Resident]


@pytest.fixture
def put(
    tmp_path: Path, wide: Path, opened: Session, monkeypatch: pytest.MonkeyPatch
) -> models.User:
    monkeypatch.setattr("kvg.model.opening.open_session", lambda *_, **__: opened)
    user = models.User.make(tmp_path / "user")
    user.add("wide", wide)
    text = models.text_of(wide, TOKENS)
    deposit(user.store, user.settings, DepositRequest("t", text=text))
    deposit(user.store, user.settings, DepositRequest("small", text=text[:60]))
    return user


@pytest.fixture
def resident(put: models.User, opened: Session) -> Resident:
    model = registered_model(put.store, "wide")
    files = identified(put.store, put.settings, model)
    return Resident(
        "desk",
        put.store.root,
        model,
        files,
        opened,
        tokenizer_of(put.settings, model, files),
        n_slots=3,
        limit_bytes=512 * MIB,
        model_bytes=MIB,
    )


def ask(
    user: models.User, resident: Resident, ref: str, index: int, most: int, **more: object
) -> Graft:
    with resident.turns.held(threading.Event()), Seat(resident, index) as seat:
        settings = replace(user.settings, seat=seat)
        asked = GraftRequest(ref, sampling=Sampling(most), **more)  # type: ignore[arg-type]
        (found,) = graft(user.store, settings, asked)
    assert isinstance(found, Graft) and found.exact
    return found


def page_digests(resident: Resident, index: int, n_tokens: int) -> list[str]:
    """Of the pages that slot ``index`` would keep of its first ``n_tokens``."""
    held = resident.held[index]
    assert held is not None
    length, held.slot.state.length = held.slot.state.length, n_tokens
    try:
        return [sha256(page.raw) for page in captured(resident.session, held.slot)]
    finally:
        held.slot.state.length = length


def test_two_slots_that_graft_one_artifact_cost_its_memory_once(
    put: models.User, resident: Resident
) -> None:
    pages = put.store.manifest(put.store.resolve("t").digest).pages
    size = sum(page.size for page in pages)
    assert size > 40 * MIB
    ask(put, resident, "small", 2, 1, prompt=" so")
    before = memory_bytes()
    first = ask(put, resident, "t", 0, 1, prompt=" so")
    one = memory_bytes() - before
    second = ask(put, resident, "t", 1, 1, prompt=" so")
    two = memory_bytes() - before
    assert first.restored_bytes == second.restored_bytes == size
    assert first.logits_digest == second.logits_digest
    assert 0.95 * size < one < 1.25 * size
    assert two - one < 0.1 * size + 2 * TAIL_BYTES
    expected = [page.digest for page in pages]
    assert page_digests(resident, 0, TOKENS) == page_digests(resident, 1, TOKENS) == expected


def test_two_slots_that_share_nothing_cost_it_twice(put: models.User, opened: Session) -> None:
    """What the measure says of slots that are filled each for itself."""
    verified = verify_artifact(put.store, put.store.resolve("t").digest)
    size = sum(page.size for page in verified.manifest.pages)
    before = memory_bytes()
    slots = [opened.slot(), opened.slot()]
    for slot in slots:
        opened.restore(slot, verified)
    assert memory_bytes() - before > 1.9 * size


def test_what_one_slot_decodes_is_not_seen_by_the_other(
    put: models.User, resident: Resident
) -> None:
    expected = [page.digest for page in put.store.manifest(put.store.resolve("t").digest).pages]
    ask(put, resident, "t", 0, 1, prompt=" so")
    ask(put, resident, "t", 1, 1, prompt=" so")
    silent = resident.held[1]
    assert silent is not None
    kept = [sha256(page.raw) for page in captured(resident.session, silent.slot)]
    before = memory_bytes()
    spoken = ask(put, resident, "t", 0, 24, prompt=" and then")
    grown = memory_bytes() - before
    assert spoken.new_tokens == 24
    assert grown < 4 * TAIL_BYTES + 2 * MIB
    assert [sha256(page.raw) for page in captured(resident.session, silent.slot)] == kept
    assert page_digests(resident, 0, TOKENS) == page_digests(resident, 1, TOKENS) == expected
    alone = ask(put, resident, "t", 2, 24, prompt=" and then")
    assert (alone.text, alone.logits_digest) == (spoken.text, spoken.logits_digest)
