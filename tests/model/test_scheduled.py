"""Scheduled execution: deterministic stock kernels, exact under one and the same schedule."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from kvg.errors import Incompatible
from kvg.model.dtypes import TORCH_DTYPES
from kvg.model.opening import default_schedule, open_session
from kvg.model.session import Session
from kvg.objects.manifest import Schedule
from tests import models
from tests.model.test_invariant import state_digests, text_ids


@pytest.fixture(params=models.FAMILIES)
def folder(request: pytest.FixtureRequest, tiny: dict[str, Path]) -> Path:
    return tiny[request.param]


@pytest.fixture(params=["sdpa", "eager"])
def attention(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["BF16", "F32"])
def session(request: pytest.FixtureRequest, folder: Path, attention: str) -> Session:
    return models.session(folder, request.param, Schedule(256, attention, 2))


@pytest.mark.parametrize("n", [1, 2, 255, 256, 257, 513])
def test_a_second_run_has_the_same_bits(session: Session, n: int) -> None:
    ids, prompt = text_ids(n), text_ids(20)
    found = []
    for _ in range(2):
        slot = session.slot()
        logits = session.prefill(slot, ids, [n - 1]).logits[n - 1]
        pages = state_digests(session, slot)
        witness, last = session.resume(slot, ids[-1], prompt)
        assert torch.equal(witness, logits)
        slot.truncate(n)
        assert state_digests(session, slot) == pages
        found.append((logits, last, pages))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
    assert found[0][2] == found[1][2]


def test_logits_are_close_to_the_stock_forward(
    session: Session, folder: Path, attention: str
) -> None:
    dtype = TORCH_DTYPES[session.model.dtype]
    stock = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation=attention)
    ids, prompt = text_ids(300), text_ids(45)
    with torch.inference_mode():
        whole = stock(input_ids=torch.tensor([ids + prompt])).logits[0].float()
    slot = session.slot()
    done = session.prefill(slot, ids, [99, 299])
    last = session.resume(slot, ids[-1], prompt)[1]
    for found, position in ((done.logits[99], 99), (done.logits[299], 299), (last, 344)):
        worst = (found.float() - whole[position]).abs().max() / whole.std()
        assert worst < (0.4 if dtype == torch.bfloat16 else 1e-3)


def test_the_engine_names_the_schedule(tiny: dict[str, Path]) -> None:
    folder = tiny["llama"]
    schedules = [
        None,
        Schedule(256, "sdpa", 2),
        Schedule(128, "sdpa", 2),
        Schedule(256, "sdpa", 1),
        Schedule(256, "eager", 2),
    ]
    engines = [models.session(folder, "BF16", schedule).engine for schedule in schedules]
    assert len({engine.fingerprint for engine in engines}) == len(engines)
    assert [engine.schedule for engine in engines] == schedules


def test_threads_of_the_schedule_hold_whatever_is_set(tiny: dict[str, Path]) -> None:
    session = models.session(tiny["gemma3"], "F32", Schedule(256, "sdpa", 2))
    ids = text_ids(300)
    found = []
    for n in (1, 2):
        with models.threads(n):
            found.append(session.prefill(session.slot(), ids, [299]).logits[299])
            assert torch.get_num_threads() == n
    assert torch.equal(*found)


def test_one_slot_at_a_time(tiny: dict[str, Path]) -> None:
    session = models.session(tiny["llama"], "BF16", Schedule(256, "sdpa", 2))
    with pytest.raises(Incompatible, match="one slot"):
        session.run_batch([session.slot(), session.slot()], [[5], [6]], [0])


def test_the_default_schedule(tiny: dict[str, Path]) -> None:
    assert default_schedule() == Schedule(256, "sdpa", torch.get_num_threads())
    assert default_schedule(64, attention="eager").attention == "eager"
    session = open_session(tiny["llama"], dtype="BF16", device="cpu", reference="scheduled")
    assert session.engine.schedule == default_schedule()
