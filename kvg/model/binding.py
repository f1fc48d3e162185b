"""What a model sees as its cache: writes go to the slots' own state, nothing is ever dropped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import torch

from kvg.errors import Incompatible
from kvg.model.census import own_operator
from kvg.model.state import SlotState


class BoundCache:
    """The cache argument of one forward pass over one or more slots.

    ``starts[b]`` is the position of row b's first new token, ``counts[b]`` how many of the row's
    tokens are real; what pads a shorter row is never written. ``whole`` makes ``update`` return
    everything up to the new tokens, as a stock attention expects; else it returns the new tokens
    alone and attention reads the slots.
    """

    is_compileable = False
    is_sliding: tuple[bool, ...] = ()

    def __init__(
        self,
        states: Sequence[SlotState],
        starts: Sequence[int],
        counts: Sequence[int],
        *,
        whole: bool,
    ) -> None:
        self.states = tuple(states)
        self.starts = tuple(starts)
        self.counts = tuple(counts)
        self._whole = whole
        self._given: list[tuple[torch.Tensor, torch.Tensor, int]] = []

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *_: object,
        **__: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keep the new keys ``[B, kv_heads, T, k_dim]`` and values of one layer."""
        _keep(key_states, value_states, self, layer_idx)
        if not self._whole:
            self._given.append((key_states, value_states, layer_idx))
            return key_states, value_states
        state, end = self.states[0], self.starts[0] + self.counts[0]
        return (
            state.keys[layer_idx][:, :end].contiguous().unsqueeze(0),
            state.values[layer_idx][:, :end].contiguous().unsqueeze(0),
        )

    def owner(self, keys: torch.Tensor, values: torch.Tensor) -> int | None:
        """The layer whose state ``keys`` and ``values`` are, as ``update`` returned them.

        A layer that shares those of another hands on the other's tensors. None for tensors that
        were made after ``update``: the slots do not hold them.
        """
        for is_same in (_is_it, _is_its_memory):
            for k, v, layer in self._given:
                if is_same(k, keys) and is_same(v, values):
                    return layer
        return None

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.starts[0]

    def get_query_offset(self, layer_idx: int = 0) -> int:
        return self.starts[0]

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        return self.starts[0] + query_length, 0

    def get_max_length(self) -> int:
        return -1

    get_max_cache_shape = get_max_length

    def has_previous_state(self, layer_idx: int | None = None) -> bool:
        return False

    def __getattr__(self, name: str) -> NoReturn:
        """Whatever else a model wants of its cache is state that pages cannot hold."""
        raise UnknownState(
            f"the model asks its cache for {name}: it keeps a state that is not keys and values",
            hint="only models whose every layer is attention can be deposited",
        )


def _is_it(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a is b


def _is_its_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether ``b`` is a view of all of ``a``, in the same order: the same numbers."""
    if a.data_ptr() != b.data_ptr() or a.shape != b.shape or a.dtype != b.dtype:
        return False
    steps = zip(a.shape, a.stride(), b.stride(), strict=True)
    return all(size == 1 or step == other for size, step, other in steps)


@own_operator
def _keep(keys: torch.Tensor, values: torch.Tensor, cache: BoundCache, layer: int) -> None:
    """Write the new keys and values of one layer to the slots of ``cache``."""
    for row, (state, start, n) in enumerate(
        zip(cache.states, cache.starts, cache.counts, strict=True)
    ):
        state.write(layer, start, keys[row, :, :n], values[row, :, :n])


class UnknownState(Incompatible, AttributeError):
    """A layer keeps something that pages cannot hold: a convolution, a recurrence, an index."""


class ShapeProbe(BoundCache):
    """A cache that keeps nothing and notes the shape of what each layer would store."""

    def __init__(self) -> None:
        super().__init__((), (0,), (1,), whole=False)
        self.shapes: dict[int, tuple[int, int, int, torch.dtype]] = {}
        self._copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *_: object,
        **__: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self._given.append((key_states, value_states, layer_idx))
        self._copies[layer_idx] = key_states.clone(), value_states.clone()
        self.shapes[layer_idx] = (
            key_states.shape[1],
            key_states.shape[-1],
            value_states.shape[-1],
            key_states.dtype,
        )
        return key_states, value_states

    def owner(self, keys: torch.Tensor, values: torch.Tensor) -> int | None:
        """As for any cache; None also where the tensors were changed since ``update``."""
        layer = super().owner(keys, values)
        if layer is None:
            return None
        pairs = zip((keys, values), self._copies[layer], strict=True)
        return layer if all(torch.equal(now, then) for now, then in pairs) else None
