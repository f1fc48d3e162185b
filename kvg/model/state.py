"""The key-value state of one sequence: every layer whole, at absolute positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from kvg.digest import Buffer
from kvg.errors import Corrupt
from kvg.model.dtypes import TORCH_DTYPES
from kvg.objects.manifest import Group, LayerSpec
from kvg.objects.page import data_start, page_header, page_size, tensor_spans
from kvg_kernels.alignment import ALIGNMENT_BYTES
from kvg_kernels.attention import BLOCK_TOKENS


class SlotState:
    """Keys and values of every layer for positions [0, length), in memory of growing capacity.

    ``keys[layer]`` is ``[kv_heads, capacity, k_dim]``, ``values[layer]`` alike with v_dim; the
    capacity is a multiple of 256, what lies past ``length`` is finite. Sliding layers keep all
    positions here; what their window does not reach may be zero after a graft.
    """

    def __init__(self, layers: Sequence[LayerSpec], device: torch.device) -> None:
        self._layers = {layer.index: layer for layer in layers}
        self._device = device
        self.capacity = 0
        self.length = 0
        self.keys: dict[int, torch.Tensor] = {}
        self.values: dict[int, torch.Tensor] = {}

    def reserve(self, n_tokens: int) -> None:
        """Make room for positions up to ``n_tokens``; what is held stays as it is."""
        if n_tokens <= self.capacity:
            return
        wanted = max(n_tokens, min(2 * self.capacity, self.capacity + 4096))
        capacity = -(-wanted // BLOCK_TOKENS) * BLOCK_TOKENS
        for index, layer in self._layers.items():
            dtype = TORCH_DTYPES[layer.dtype]
            for held, dim in ((self.keys, layer.k_dim), (self.values, layer.v_dim)):
                grown = zeros_aligned((layer.kv_heads, capacity, dim), dtype, self._device)
                if index in held:
                    grown[:, : self.length] = held[index][:, : self.length]
                held[index] = grown
        self.capacity = capacity

    def write(self, layer: int, start: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Put keys ``[kv_heads, n, k_dim]`` and values of one layer at ``start``."""
        end = start + keys.shape[1]
        self.keys[layer][:, start:end] = keys
        self.values[layer][:, start:end] = values

    def token(self, position: int) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
        """A copy of what every layer holds at ``position``."""
        return {
            index: (
                self.keys[index][:, position : position + 1].clone(),
                self.values[index][:, position : position + 1].clone(),
            )
            for index in self._layers
        }

    def put_token(self, position: int, held: dict[int, tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Put back what ``token`` returned."""
        for index, (keys, values) in held.items():
            self.write(index, position, keys, values)

    def copy(self) -> SlotState:
        """An independent copy, positions [0, length)."""
        other = SlotState(tuple(self._layers.values()), self._device)
        other.reserve(self.capacity)
        other.length = self.length
        for index in self._layers:
            other.keys[index].copy_(self.keys[index])
            other.values[index].copy_(self.values[index])
        return other


def zeros_aligned(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros whose first element lies on a 64-byte boundary."""
    tensor = torch.zeros(shape, dtype=dtype, device=device)
    if tensor.data_ptr() % ALIGNMENT_BYTES:
        size = tensor.element_size()
        flat = torch.zeros(tensor.numel() + ALIGNMENT_BYTES // size, dtype=dtype, device=device)
        skip = (-flat.data_ptr() % ALIGNMENT_BYTES) // size
        tensor = flat[skip : skip + tensor.numel()].view(shape)
    return tensor


def capture_page(state: SlotState, group: Group, start: int, end: int, *, what: str) -> bytearray:
    """The raw bytes of the page of ``group`` for positions [start, end).

    Raises ``Corrupt`` naming ``what`` when a value is not finite.
    """
    n_tokens = end - start
    raw = bytearray(page_size(group, n_tokens))
    head = data_start(group, n_tokens)
    raw[:head] = page_header(group, n_tokens)
    for layer, part, view in _page_tensors(raw, group, n_tokens):
        source = (state.keys if part == "k" else state.values)[layer][:, start:end]
        view.copy_(source)
        if not bool(torch.isfinite(view).all()):
            raise Corrupt(
                f"{what}: layer {layer} holds a value that is not finite",
                hint="the model overflowed in this dtype: try kvg model add --dtype F32",
            )
    return raw


def place_page(state: SlotState, group: Group, start: int, end: int, raw: Buffer) -> None:
    """Put the page ``raw``, checked already, back at positions [start, end)."""
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
