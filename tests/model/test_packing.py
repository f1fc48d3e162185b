"""A session that decodes lays its weights out, and no bit changes by it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kvg.model import opening, packing
from kvg.model.loader import load_model
from kvg.model.packing import SHORT_PASSES
from kvg.model.session import Session
from kvg_kernels.linear import can_pack
from tests import models

IDS = tuple(range(5, 45))
pytestmark = pytest.mark.skipif(
    not can_pack(torch.bfloat16, torch.device("cpu")), reason="this torch lays out no weights"
)


@pytest.fixture
def session(tiny: dict[str, Path]) -> Session:
    """Of a model of its own, whose weights are changed here."""
    model = load_model(tiny["llama"], dtype="BF16", device="cpu", attention="kvg_invariant")
    return opening.session_of(model, schedule=None)


def decoded(session: Session) -> list[torch.Tensor]:
    slot = session.slot()
    return [session.run(slot, [token], [0])[0] for token in IDS]


def plain(session: Session) -> torch.Tensor:
    """The same from a pass that is too long for laid-out weights."""
    return session.run(session.slot(), IDS * 3, range(len(IDS)))


def held(session: Session) -> int:
    return len(session._packing.weights(1))


def test_no_bit_changes_when_weights_are_laid_out(session: Session) -> None:
    whole = session.run(session.slot(), IDS, range(len(IDS)))
    for _ in range(2):
        assert torch.equal(torch.stack(decoded(session)), whole)
    assert held(session) > 4
    assert torch.equal(session.run(session.slot(), IDS, range(len(IDS))), whole)


def test_it_is_done_after_some_short_passes_only(tiny: dict[str, Path]) -> None:
    model = models.load(tiny["llama"], "BF16")
    session = Session(model, *opened(model))
    assert [bool(session._packing.weights(1)) for _ in range(SHORT_PASSES + 1)] == [
        *[False] * SHORT_PASSES,
        True,
    ]
    assert not session._packing.weights(4096)


def opened(model):  # type: ignore[no-untyped-def]
    found = opening.session_of(model, schedule=None)
    return found.engine, found._menus.here()


def test_a_large_model_keeps_to_its_plain_weights(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "MAX_BYTES", 1000)
    first = decoded(session)
    assert held(session) == 0
    assert torch.equal(torch.stack(first), session.run(session.slot(), IDS, range(len(IDS))))


def test_a_weight_that_is_exchanged_is_read_as_it_is(session: Session) -> None:
    decoded(session)
    assert held(session)
    for part in session.model.module.modules():
        if isinstance(part, torch.nn.Linear):
            part.weight.data = part.weight.data * 0.5
    assert torch.equal(torch.stack(decoded(session)), plain(session))


def test_a_weight_changed_in_place_is_read_as_it_is(session: Session) -> None:
    decoded(session)
    assert held(session)
    with torch.no_grad():
        for part in session.model.module.modules():
            if isinstance(part, torch.nn.Linear):
                part.weight.mul_(0.5)
    assert torch.equal(torch.stack(decoded(session)), plain(session))


def test_a_weight_changed_past_its_counter_is_read_as_it_is(session: Session) -> None:
    """Writes through ``.data`` are counted nowhere: a sample of every weight shows them."""
    decoded(session)
    assert held(session)
    packed = session._packing.weights(1)
    parts = session.model.module.modules()
    weights = [part.weight for part in parts if isinstance(part, torch.nn.Linear)]
    next(weight for weight in weights if id(weight) in packed).data.mul_(1.5)
    assert torch.equal(torch.stack(decoded(session)), plain(session))
    assert held(session)


def test_a_weight_without_a_counter_is_not_laid_out(session: Session) -> None:
    with torch.inference_mode():
        for part in session.model.module.modules():
            if isinstance(part, torch.nn.Linear):
                part.weight = torch.nn.Parameter(part.weight.clone(), requires_grad=False)
    decoded(session)
    assert not held(session)
