"""What torch is told for the whole process: a session is not taken from under it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from kvg.errors import Incompatible
from kvg.model.opening import default_schedule, session_of
from tests import models

Setting = Callable[[], object]


@contextmanager
def precision() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def default_dtype() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


SETTINGS: dict[str, Setting] = {
    "set_float32_matmul_precision": precision,
    "set_default_dtype": default_dtype,
    "mkldnn": lambda: torch.backends.mkldnn.flags(enabled=False),
    "use_deterministic_algorithms": deterministic,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_pass_under_another_setting_is_refused(tiny: dict[str, Path], name: str) -> None:
    session = models.session(tiny["llama"], "F32")
    slot = session.slot()
    before = session.prefill(slot, [5, 9, 7], [2]).logits[2]
    with SETTINGS[name](), pytest.raises(Incompatible, match=name):  # type: ignore[attr-defined]
        session.prefill(session.slot(), [5, 9, 7], [2])
    slot = session.slot()
    assert torch.equal(session.prefill(slot, [5, 9, 7], [2]).logits[2], before)


@pytest.mark.parametrize("is_scheduled", [False, True])
def test_no_session_is_opened_inside_of_autocast(tiny: dict[str, Path], is_scheduled: bool) -> None:
    attention = "sdpa" if is_scheduled else "kvg_invariant"
    model = models.load(tiny["llama"], "BF16", attention)
    schedule = default_schedule() if is_scheduled else None
    with torch.autocast("cpu", torch.float16), pytest.raises(Incompatible, match="autocast"):
        session_of(model, schedule=schedule)
