"""Keys turned from one position to another, by the model's own rotary module.

A rotary encoding turns each pair of a key's elements by an angle that grows with the position:
k(p) = R(p) x. To move a key from p to q it is turned back, R(p)^-1 k(p), and on, R(q). In exact
arithmetic that is the key of position q; docs/own-position.md derives why it is not in floats.
Some models (YaRN) scale the cosines and sines, and with them every key, by one number.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from kvg.errors import Incompatible
from kvg.model.binding import BoundCache
from kvg.model.census import own_operator
from kvg.model.dtypes import TORCH_DTYPES
from kvg.model.invariant import Execution, TileMenu, installed
from kvg.model.probe import same_bits
from kvg.model.session import Session
from kvg.objects.manifest import Group

CHECK_POSITIONS = (1, 2, 77)
HINT = "the invariant and the scheduled reference hold for it all the same"


class Rotation:
    """Turns keys of the layers of one model.

    Raises ``Incompatible`` unless it reproduces, bit for bit, the keys that the model itself
    computes at a few positions, in every layer; where keys are scaled, what they were before can't
    be had to the bit, and they have to be close.
    """

    def __init__(self, session: Session) -> None:
        model = session.model
        self._what = type(model.module).__name__
        rotary = getattr(model.module.base_model, "rotary_emb", None)
        if not isinstance(rotary, torch.nn.Module):
            raise Incompatible(f"{self._what}: no rotary module of its own to move keys by")
        self._rotary = rotary
        self._kinds: Sequence[str] | None = None
        if "layer_type" in inspect.signature(self._rotary.forward).parameters:
            self._kinds = model.module.config.get_text_config().layer_types
        self._check(session)

    def moved(
        self, keys: torch.Tensor, group: Group, offsets: Sequence[int], arithmetic: torch.dtype
    ) -> torch.Tensor:
        """Keys of positions [0, n) turned to ``offsets[b]`` and after, computed in ``arithmetic``.

        Shapes: ``[L, kv_heads, n, k_dim]``, the layers of ``group``, to ``[B, L, kv_heads, n,
        k_dim]`` in the dtype of ``keys``.
        """
        own = torch.arange(keys.shape[-2])
        x = keys.to(arithmetic)
        with _as_the_model():
            cos, sin = self._angles(group, own.unsqueeze(0), arithmetic)
            back = turn(x, cos[0], -sin[0])
        scale = self._scale(group, arithmetic)
        if scale != 1:
            back = back / scale**2
        return self.turned(back, group, offsets).to(keys.dtype)

    def turned(self, x: torch.Tensor, group: Group, offsets: Sequence[int]) -> torch.Tensor:
        """Unturned ``x`` ``[L, kv_heads, n, k_dim]`` at positions [offset, offset + n)."""
        positions = torch.tensor(offsets).unsqueeze(1) + torch.arange(x.shape[-2])
        with _as_the_model():
            cos, sin = self._angles(group, positions, x.dtype)
            return turn(x.unsqueeze(0), cos[:, None, None], sin[:, None, None])

    def _scale(self, group: Group, dtype: torch.dtype) -> float:
        """What a cosine of nothing is: 1, where keys are not scaled."""
        with _as_the_model():
            cos, _ = self._angles(group, torch.zeros(1, 1, dtype=torch.long), dtype)
        return float(cos.flatten()[0])

    def _angles(
        self, group: Group, positions: torch.Tensor, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines ``[B, n, rotary_dim]`` of ``positions`` ``[B, n]``."""
        like = torch.zeros(1, dtype=dtype)
        more = () if self._kinds is None else (self._kinds[group.layers[0]],)
        cos, sin = self._rotary(like, positions, *more)
        return cos, sin

    def _check(self, session: Session) -> None:
        """One token attends to itself alone: its keys differ by the rotation only, everywhere."""
        dtype = TORCH_DTYPES[session.model.dtype]
        zero = fresh_keys(session, [1], [0])
        for position in CHECK_POSITIONS:
            found = fresh_keys(session, [1], [position])
            for group in session.model.groups:
                scale = self._scale(group, dtype)
                keys = zero[group.name][0].to(dtype)
                own = self.turned(keys if scale == 1 else keys / scale, group, [position])
                is_same = same_bits if scale == 1 else _are_close
                if not is_same(own, found[group.name]):
                    raise Incompatible(
                        f"{self._what}: its keys of group {group.name} are not turned by halves "
                        "as its rotary module says",
                        hint=HINT,
                    )


def _are_close(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether they differ by no more than a few roundings do."""
    few = 8 * torch.finfo(a.dtype).eps
    return torch.allclose(a.double(), b.double(), rtol=few, atol=few)


def turn(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """``x`` turned as transformers does: whole, in its first part, or by half-width angles."""
    n_rotary, dim = cos.shape[-1], x.shape[-1]
    if 2 * n_rotary == dim and not _is_doubled(cos):
        first, second = x.chunk(2, -1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
    part, rest = x[..., :n_rotary], x[..., n_rotary:]
    half = n_rotary // 2
    swapped = torch.cat([-part[..., half:], part[..., :half]], -1)
    out = part * cos + swapped * sin
    if rest.shape[-1]:
        out = torch.cat([out, rest.expand(*out.shape[:-1], rest.shape[-1])], -1)
    return out


def fresh_keys(
    session: Session, ids: Sequence[int], offsets: Sequence[int]
) -> dict[str, torch.Tensor]:
    """The keys of ``ids`` computed afresh at each of ``offsets``, by group.

    Shape of each: ``[B, L, kv_heads, n, k_dim]``.
    """
    slots = [session.slot() for _ in offsets]
    session.run_batch(slots, [ids] * len(slots), [], offsets=offsets)
    return {
        group.name: torch.stack(
            [
                torch.stack([slot.state.keys[layer][:, : len(ids)] for layer in group.layers])
                for slot in slots
            ]
        )
        for group in session.model.groups
    }


@contextmanager
def _as_the_model() -> Iterator[None]:
    """Sines and cosines as the model computes them inside an invariant pass."""
    nothing = BoundCache((), (), (), whole=False)
    with torch.inference_mode(), installed(Execution(nothing, TileMenu())):
        yield


@own_operator
def _is_doubled(cos: torch.Tensor) -> bool:
    """Whether the second half of the angles repeats the first."""
    first, second = cos.chunk(2, -1)
    return torch.equal(first, second)
