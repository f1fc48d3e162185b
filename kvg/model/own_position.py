"""What becomes of a graft at another position: its keys against fresh ones, and the logits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from kvg.digest import Digest, sha256
from kvg.model.comparison import Comparison, compare_logits
from kvg.model.dtypes import TORCH_DTYPES, raw_bytes
from kvg.model.probe import same_bits
from kvg.model.rotation import Rotation, fresh_keys
from kvg.model.session import Session, Slot

_BITS = {2: torch.int16, 4: torch.int32}


@dataclass(frozen=True, slots=True)
class MovedKeys:
    """All keys of one text moved by ``offset`` in ``arithmetic``, against fresh ones there.

    ``first_layer_equal``: in the first layer the hidden states are the same, only the turn differs.
    """

    offset: int
    arithmetic: str
    fresh: Digest
    moved: Digest
    first_layer_equal: bool
    elements: int
    elements_equal: int
    max_ulp: int


@dataclass(frozen=True, slots=True)
class MovedLogits:
    """The logits after a graft moved by ``offset``, against those of a fresh computation there."""

    offset: int
    arithmetic: str
    found: Comparison
    max_ulp: int


def arithmetics(session: Session) -> tuple[str, ...]:
    """The number formats that keys are moved in: the widest and the model's own."""
    return ("F32",) if session.model.dtype == "F32" else ("F32", session.model.dtype)


def moved_keys(
    session: Session, rotation: Rotation, ids: Sequence[int], offsets: Sequence[int]
) -> Iterator[MovedKeys]:
    """Compare the keys of ``ids``, moved from position 0, with fresh ones at ``offsets``."""
    own = fresh_keys(session, ids, [0])
    fresh = fresh_keys(session, ids, offsets)
    for arithmetic in arithmetics(session):
        moved = {
            group.name: rotation.moved(own[group.name][0], group, offsets, TORCH_DTYPES[arithmetic])
            for group in session.model.groups
        }
        for row, offset in enumerate(offsets):
            pairs = [(fresh[name][row], moved[name][row]) for name in fresh]
            yield MovedKeys(
                offset=offset,
                arithmetic=arithmetic,
                fresh=_digest([a for a, _ in pairs]),
                moved=_digest([b for _, b in pairs]),
                first_layer_equal=same_bits(pairs[0][0][0], pairs[0][1][0]),
                elements=sum(a.numel() for a, _ in pairs),
                elements_equal=sum(int((a == b).sum()) for a, b in pairs),
                max_ulp=max(ulps(a, b) for a, b in pairs),
            )


def own_logits(session: Session, ids: Sequence[int], prompt: Sequence[int]) -> MovedLogits:
    """The control: the graft at its own position, its keys as they were stored."""
    slot = session.slot()
    session.run(slot, ids, [])
    grafted = session.run(slot, prompt, [len(prompt) - 1])[0]
    return _compared(0, "none", grafted, _fresh_logits(session, ids, prompt, 0))


def moved_logits(
    session: Session,
    rotation: Rotation,
    ids: Sequence[int],
    prompt: Sequence[int],
    offset: int,
) -> Iterator[MovedLogits]:
    """Compare the logits after ``ids``, moved by ``offset``, and ``prompt`` with fresh ones."""
    fresh = _fresh_logits(session, ids, prompt, offset)
    own = session.slot()
    session.run(own, ids, [])
    for arithmetic in arithmetics(session):
        slot = _moved_slot(session, rotation, own, offset, TORCH_DTYPES[arithmetic])
        last = len(prompt) - 1
        grafted = session.run_batch([slot], [prompt], [last], offsets=[offset])[0, 0]
        yield _compared(offset, arithmetic, grafted, fresh)


def ulps(a: torch.Tensor, b: torch.Tensor) -> int:
    """The largest distance of two tensors, in units in the last place of their dtype."""
    return int((_ordered(a) - _ordered(b)).abs().max())


def _moved_slot(
    session: Session, rotation: Rotation, own: Slot, offset: int, arithmetic: torch.dtype
) -> Slot:
    slot = session.fork(own)
    for group in session.model.groups:
        keys = torch.stack([own.state.keys[layer][:, : own.length] for layer in group.layers])
        moved = rotation.moved(keys, group, [offset], arithmetic)[0]
        for layer, part in zip(group.layers, moved, strict=True):
            slot.state.write(layer, 0, part, own.state.values[layer][:, : own.length])
    return slot


def _fresh_logits(
    session: Session, ids: Sequence[int], prompt: Sequence[int], offset: int
) -> torch.Tensor:
    text = [*ids, *prompt]
    return session.run_batch([session.slot()], [text], [len(text) - 1], offsets=[offset])[0, 0]


def _compared(
    offset: int, arithmetic: str, grafted: torch.Tensor, fresh: torch.Tensor
) -> MovedLogits:
    return MovedLogits(offset, arithmetic, compare_logits(grafted, fresh), ulps(grafted, fresh))


def _digest(tensors: Sequence[torch.Tensor]) -> Digest:
    return sha256(b"".join(bytes(raw_bytes(tensor)) for tensor in tensors))


def _ordered(x: torch.Tensor) -> torch.Tensor:
    """Whole numbers that count floats upward: neighbours differ by one, both zeros are 0."""
    bits = x.contiguous().view(_BITS[x.element_size()]).to(torch.int64)
    lowest = -(1 << (8 * x.element_size() - 1))
    return torch.where(bits < 0, lowest - bits, bits)
