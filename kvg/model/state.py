"""The key-value state of one sequence: every layer whole, at absolute positions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import torch

from kvg.digest import Buffer
from kvg.errors import Bug, Corrupt, Incompatible
from kvg.model.dtypes import TORCH_DTYPES
from kvg.model.memory import PAGE_BYTES, Memory
from kvg.model.placing import Place, Placing
from kvg.objects.manifest import Group, LayerSpec
from kvg.objects.page import DTYPE_SIZES, data_start, page_header, page_size, tensor_spans
from kvg_kernels.alignment import ALIGNMENT_BYTES
from kvg_kernels.attention import BLOCK_TOKENS

if TYPE_CHECKING:
    from kvg.buffers import Buffers


class SlotState:
    """Keys and values of every layer for positions [0, length), each layer in one piece.

    ``keys[layer]`` is ``[kv_heads, capacity, k_dim]``, ``values[layer]`` alike with v_dim; the
    capacity is a multiple of 256, what lies past ``length`` is finite. Sliding layers keep all
    positions here; what their window did not reach in a graft is not held, and zero. A frozen state
    is not written again; forks of it share its memory until they write.
    """

    def __init__(
        self,
        layers: Sequence[LayerSpec],
        device: torch.device,
        capacity: int,
        *,
        memory: Memory | None = None,
    ) -> None:
        """``capacity`` tokens fit at first; ``reserve`` makes room for more."""
        self._layers = {layer.index: layer for layer in layers}
        self._device = device
        self.length = 0
        self.is_frozen = False
        self._held_from: dict[int | None, int] = {}
        self._place(-(-capacity // BLOCK_TOKENS) * BLOCK_TOKENS, memory)

    @classmethod
    def to_share(
        cls, layers: Sequence[LayerSpec], device: torch.device, capacity: int
    ) -> SlotState:
        """An empty state whose forks, once it is frozen, will share its memory (on a CPU)."""
        if device.type != "cpu":
            return cls(layers, device, capacity)
        capacity = -(-capacity // BLOCK_TOKENS) * BLOCK_TOKENS
        size = sum(_region_size(layer, capacity) for layer in layers)
        return cls(layers, device, capacity, memory=Memory.shared(size))

    def freeze(self) -> None:
        """Let nothing be written any more."""
        self.is_frozen = True

    def check_writable(self) -> None:
        """Raise ``Bug`` for a frozen state: its forks would see the change."""
        if self.is_frozen:
            raise Bug("slot: a frozen state was written to")

    def fork(self) -> SlotState:
        """A state that begins as this one; memory is shared where this one is frozen."""
        layers = tuple(self._layers.values())
        if self._memory is not None and self._memory.is_shared and self.is_frozen:
            fork = SlotState(layers, self._device, self.capacity, memory=self._memory.fork())
        else:
            fork = SlotState(layers, self._device, self.capacity)
            fork.take(self)
        fork.length = self.length
        fork._held_from = dict(self._held_from)
        return fork

    def take(self, other: SlotState) -> None:
        """Begin as ``other``, a state of the same layers, in memory of its own."""
        self.check_writable()
        self.reserve(other.length)
        for index in self._layers:
            self.keys[index][:, : other.length] = other.keys[index][:, : other.length]
            self.values[index][:, : other.length] = other.values[index][:, : other.length]
        self.length = other.length
        self._held_from = dict(other._held_from)

    def fill(self, length: int, pages: Iterable[tuple[Group, int, int]]) -> None:
        """It holds ``length`` positions now, by the ``pages`` that were put: group, start, end."""
        spans: dict[Group, list[tuple[int, int]]] = {}
        for group, start, end in pages:
            spans.setdefault(group, []).append((start, end))
        self._held_from = {}
        for group, own in spans.items():
            first = length
            for start, end in sorted(own, reverse=True):
                if end < first:
                    break
                first = min(first, start)
            known = self._held_from.get(group.window, 0)
            self._held_from[group.window] = max(known, first)
        self.length = length

    def truncate(self, length: int) -> None:
        """Forget everything from position ``length`` on.

        Raises ``Incompatible`` where the next token would need what a graft did not put here.
        """
        for window, first in self._held_from.items():
            needed = 0 if window is None else max(0, length - window + 1)
            if length and first > needed:
                raise Incompatible(
                    f"position {length}: layers with a window of {window} need positions from "
                    f"{needed} on there, and this slot was grafted with those from {first} on",
                    hint="graft it at that cut, or compute the text anew",
                )
        if not length:
            self._held_from = {}
        self.length = length

    @contextmanager
    def taken_back(self, position: int) -> Iterator[None]:
        """Run the body with everything from ``position`` on forgotten, then be as before. One token
        may be written meanwhile. Raises as ``truncate``."""
        self.check_writable()
        length, held_from, token = self.length, dict(self._held_from), self.token(position)
        self.truncate(position)
        try:
            yield
        finally:
            self.put_token(position, token)
            self.length, self._held_from = length, held_from

    def check_held(self, group: Group, start: int) -> None:
        """Raise ``Incompatible`` where positions from ``start`` on are not all held."""
        first = self._held_from.get(group.window, 0)
        if start < first:
            raise Incompatible(
                f"page {group.name} from {start} on: this slot was grafted with positions from "
                f"{first} on of these layers",
                hint="deposit the text itself, or at the cuts and by the pages of what was grafted",
            )

    def reserve(self, n_tokens: int) -> None:
        """Make room for positions up to ``n_tokens``; what is held stays as it is."""
        if n_tokens <= self.capacity:
            return
        keys, values, length = self.keys, self.values, self.length
        wanted = max(n_tokens, 2 * self.capacity)
        self._place(-(-wanted // BLOCK_TOKENS) * BLOCK_TOKENS, None)
        for index in self._layers:
            self.keys[index][:, :length] = keys[index][:, :length]
            self.values[index][:, :length] = values[index][:, :length]

    def write(self, layer: int, start: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Put keys ``[kv_heads, n, k_dim]`` and values of one layer at ``start``."""
        self.check_writable()
        end = start + keys.shape[1]
        self.keys[layer][:, start:end] = keys
        self.values[layer][:, start:end] = values

    def placing(self, group: Group, start: int, end: int) -> Placing | None:
        """Puts the page of ``group`` for [start, end) where it belongs; nothing that is put counts
        before ``length`` says so.

        None where the state does not lie in this process's own memory.
        """
        if self._memory is None or self.is_frozen:
            return None
        places = []
        for span in tensor_spans(group, end - start):
            n_heads, n_tokens, dim = span.shape
            n_bytes = dim * DTYPE_SIZES[group.dtype]
            first = self._offsets[span.layer, span.part] + start * n_bytes
            places.append(Place(first, n_heads, n_tokens * n_bytes, self.capacity * n_bytes))
        return Placing(self._memory.view, places)

    def expect(self, n_tokens: int) -> None:
        """``n_tokens`` are about to be written: where that is most of it, in large pages."""
        if self._memory is not None and 2 * n_tokens >= self.capacity:
            self._memory.expect()

    def wipe(self, start: int, end: int) -> None:
        """Make positions [start, end) zero: what lies past ``length`` has to be finite."""
        self.check_writable()
        for index in self._layers:
            self.keys[index][:, start:end] = 0
            self.values[index][:, start:end] = 0

    def check_finite(self, start: int, end: int) -> None:
        """Raise ``Incompatible`` where a key or value of positions [start, end) is not finite.

        A kernel reads whole blocks, and gives what lies behind a token no weight, which of infinity
        makes a NaN.
        """
        if all(is_finite(view[:, :, start:end]) for view in self._alike):
            return
        for index in self._layers:
            for held in (self.keys, self.values):
                if not is_finite(held[index][:, start:end]):
                    raise Incompatible(
                        f"layer {index}: a key or value of positions [{start}, {end}) is not "
                        "finite",
                        hint="the model overflowed in this dtype: try kvg model add --dtype F32",
                    )

    def token(self, position: int) -> tuple[torch.Tensor, ...]:
        """A copy of what every layer holds at ``position``."""
        return tuple(view[:, :, position : position + 1].clone() for view in self._alike)

    def put_token(self, position: int, held: tuple[torch.Tensor, ...]) -> None:
        """Put back what ``token`` returned."""
        self.check_writable()
        for view, part in zip(self._alike, held, strict=True):
            view[:, :, position : position + 1] = part

    def _place(self, capacity: int, memory: Memory | None) -> None:
        """Lay out every layer's keys and values, each on a boundary of the memory's pages."""
        self.capacity = capacity
        self.keys: dict[int, torch.Tensor] = {}
        self.values: dict[int, torch.Tensor] = {}
        self._offsets: dict[tuple[int, str], int] = {}
        size = sum(_region_size(layer, capacity) for layer in self._layers.values())
        if memory is None and self._device.type == "cpu":
            memory = Memory.own(size)
        self._memory = memory
        base = (
            memory.tensor
            if memory is not None
            else torch.zeros(size, dtype=torch.uint8, device=self._device)
        )
        offset = 0
        for index, layer in self._layers.items():
            parts = (("k", self.keys, layer.k_dim), ("v", self.values, layer.v_dim))
            for part, held, dim in parts:
                self._offsets[index, part] = offset
                size = _part_size(layer, capacity, dim)
                flat = base[offset : offset + size].view(TORCH_DTYPES[layer.dtype])
                n = layer.kv_heads * capacity * dim
                held[index] = flat[:n].view(layer.kv_heads, capacity, dim)
                offset += size
        self._alike = _views_of_many(
            [held[index] for index in self._layers for held in (self.keys, self.values)]
        )


def _views_of_many(parts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The same memory in views ``[n, kv_heads, capacity, dim]`` of as many parts as lie in equal
    steps: one call looks at all of them."""
    views: list[torch.Tensor] = []
    first = 0
    while first < len(parts):
        last, step = first + 1, None
        while last < len(parts) and parts[last].shape == parts[first].shape:
            moved = parts[last].storage_offset() - parts[last - 1].storage_offset()
            if step not in (None, moved):
                break
            step, last = moved, last + 1
        shape, strides = parts[first].shape, parts[first].stride()
        n_parts = last - first
        views.append(parts[first].as_strided((n_parts, *shape), (step or 0, *strides)))
        first = last
    return views


def _region_size(layer: LayerSpec, capacity: int) -> int:
    """Bytes of one layer's keys and values."""
    return _part_size(layer, capacity, layer.k_dim) + _part_size(layer, capacity, layer.v_dim)


def _part_size(layer: LayerSpec, capacity: int, dim: int) -> int:
    size = layer.kv_heads * capacity * dim * DTYPE_SIZES[layer.dtype]
    return -(-size // PAGE_BYTES) * PAGE_BYTES


def zeros_aligned(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros whose first element lies on a 64-byte boundary."""
    tensor = torch.zeros(shape, dtype=dtype, device=device)
    if tensor.data_ptr() % ALIGNMENT_BYTES:
        size = tensor.element_size()
        flat = torch.zeros(tensor.numel() + ALIGNMENT_BYTES // size, dtype=dtype, device=device)
        skip = (-flat.data_ptr() % ALIGNMENT_BYTES) // size
        tensor = flat[skip : skip + tensor.numel()].view(shape)
    return tensor


def capture_page(
    state: SlotState,
    group: Group,
    start: int,
    end: int,
    *,
    what: str,
    buffers: Buffers | None = None,
) -> Buffer:
    """The raw bytes of the page of ``group`` for positions [start, end).

    They are in ``buffers`` where those are given, until these are used again. Raises ``Corrupt``
    naming ``what`` when a value is not finite, ``Incompatible`` for positions that are not held.
    """
    state.check_held(group, start)
    n_tokens = end - start
    size = page_size(group, n_tokens)
    raw = buffers.take("page", size) if buffers else bytearray(size)
    head = data_start(group, n_tokens)
    raw[:head] = page_header(group, n_tokens)
    tensors = _page_tensors(raw, group, n_tokens)
    for layer, part, view in tensors:
        view.copy_((state.keys if part == "k" else state.values)[layer][:, start:end])
    if not is_finite(torch.frombuffer(raw, dtype=TORCH_DTYPES[group.dtype], offset=head)):
        layer = next(layer for layer, _, view in tensors if not is_finite(view))
        raise Corrupt(
            f"{what}: layer {layer} holds a value that is not finite",
            hint="the model overflowed in this dtype: try kvg model add --dtype F32",
        )
    return raw


def is_finite(values: torch.Tensor) -> bool:
    """Whether there is no NaN and no infinity: a NaN anywhere is both the least and the largest."""
    return not values.numel() or all(math.isfinite(bound) for bound in values.aminmax())


def place_page(state: SlotState, group: Group, start: int, end: int, raw: Buffer) -> None:
    """Put the page ``raw``, checked already, back at positions [start, end)."""
    state.check_writable()
    for layer, part, view in _page_tensors(raw, group, end - start):
        target = (state.keys if part == "k" else state.values)[layer]
        target[:, start:end].copy_(view)


def _page_tensors(
    raw: Buffer, group: Group, n_tokens: int
) -> list[tuple[int, Literal["k", "v"], torch.Tensor]]:
    """The tensors of a page as views of its bytes: (layer, "k" or "v", [kv_heads, n, dim])."""
    dtype = TORCH_DTYPES[group.dtype]
    head = data_start(group, n_tokens)
    data = raw if isinstance(raw, bytearray) else bytearray_view(raw)
    out = []
    for span in tensor_spans(group, n_tokens):
        n = span.shape[0] * span.shape[1] * span.shape[2]
        view = torch.frombuffer(data, dtype=dtype, count=n, offset=head + span.offset)
        out.append((span.layer, span.part, view.view(span.shape)))
    return out


def bytearray_view(raw: Buffer) -> Buffer:
    """``raw`` in a form that torch reads in place without complaint about read-only memory."""
    view = memoryview(raw)
    return bytearray(view) if view.readonly else view
