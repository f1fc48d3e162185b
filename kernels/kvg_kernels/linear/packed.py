"""``linear`` of few rows on a CPU, from a weight laid out beforehand.

The library behind ``torch.nn.functional.linear`` lays a 16-bit weight out anew in every call, in
the order its product instructions read. Over many rows that is nothing; for one token it is most of
the work. Here a weight is laid out once and kept beside the plain one. That the two products agree
bit for bit, and for which numbers of rows, is proved by the self-check before this code is used;
where they do not, the plain one is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kvg_kernels.alignment import aligned
from kvg_kernels.threads import OneThread

PACKED_TILES = (64, 16, 4, 2, 1)
"""Rows per call, largest first. Above, the plain product is as quick."""
LAYOUT_ROWS = 16
"""Rows that the layout is chosen for."""
SERIAL_BYTES = 1 << 20
"""A weight below this is read by one thread sooner than others are woken up."""


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A weight ``[N, K]`` in the library's own order, and what it was made from."""

    data: torch.Tensor
    n_bytes: int
    version: int
    pointer: int

    def is_of(self, weight: torch.Tensor) -> bool:
        """Whether ``weight`` was given no other memory since, and no write to it was counted.

        What is written through its ``data`` is not counted. Never true of a tensor of inference
        mode, for which nothing is.
        """
        is_counted = not weight.is_inference() and weight._version == self.version
        return is_counted and weight.data_ptr() == self.pointer


def can_pack(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether weights of ``dtype`` on ``device`` can be laid out beforehand.

    In fp32 another library multiplies plain weights, with other bits.
    """
    is_half = dtype in (torch.bfloat16, torch.float16)
    has_operators = all(
        hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise")
    )
    return (
        is_half and device.type == "cpu" and torch.backends.mkldnn.is_available() and has_operators
    )


def pack(weight: torch.Tensor) -> PackedWeight:
    """``weight`` ``[N, K]``, contiguous, laid out for products with few rows.

    Raises ``RuntimeError`` where the library has no such layout for the processor.
    """
    data = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), LAYOUT_ROWS)
    return PackedWeight(
        data, weight.numel() * weight.element_size(), _version(weight), weight.data_ptr()
    )


def packed_linear(
    rows: torch.Tensor,
    packed: PackedWeight,
    bias: torch.Tensor | None,
    tiles: Sequence[int],
) -> torch.Tensor:
    """``rows @ weight.T + bias`` for rows ``[M, K]``, M at most ``tiles[0]``; result ``[M, N]``.

    ``tiles`` are the numbers of rows that were proved, largest first.
    """
    n_rows = rows.shape[0]
    tile = min(tile for tile in tiles if tile >= n_rows)
    if tile != n_rows:
        padded = rows.new_zeros(tile, rows.shape[1])
        padded[:n_rows] = rows
        rows = padded
    with OneThread(packed.n_bytes < SERIAL_BYTES):
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise.default(
            aligned(rows), packed.data, bias, "none", [], ""
        )
    return out if tile == n_rows else out[:n_rows]


def _version(tensor: torch.Tensor) -> int:
    """Goes up with changes in place; a tensor of inference mode has none."""
    return -1 if tensor.is_inference() else tensor._version
