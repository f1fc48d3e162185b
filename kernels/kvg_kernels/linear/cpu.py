"""``linear`` on a CPU: the largest tiles of the menu first, the last one padded.

The library behind ``torch.nn.functional.linear`` walks K in one order for every M of the menu
(M = 1 and, in fp32, M = 2 take another path, so they never occur). That the menu's tiles agree bit
for bit on the machine at hand is proved by the self-check before this code is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch.nn import functional

from kvg_kernels.alignment import aligned

SMALL_TILE = 16
"""The tile that others are compared with: safe on every machine that was looked at."""
TILES = (1024, 256, 64, SMALL_TILE, 4, 2)
"""Rows per call, largest first; the smallest is for decoding."""


def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    tiles: Sequence[int] = TILES,
) -> torch.Tensor:
    """``x @ weight.T + bias``, each row's bits independent of how many rows there are.

    Shapes: x ``[..., K]``, weight ``[N, K]``, bias ``[N]`` or None; result ``[..., N]``, in x's
    dtype. ``weight`` and ``bias`` must be contiguous and 64-byte aligned.
    """
    rows = x.reshape(-1, x.shape[-1])
    n_rows, n_out = rows.shape[0], weight.shape[0]
    if n_rows in tiles:
        out = functional.linear(aligned(rows), weight, bias)
        return out.reshape(*x.shape[:-1], n_out)
    if n_rows == 1:
        out = functional.linear(rows.expand(tiles[-1], -1).contiguous(), weight, bias)
        return out[:1].reshape(*x.shape[:-1], n_out)
    out = x.new_empty(n_rows, n_out)
    for start, n, tile in row_tiles(n_rows, tiles):
        part = rows[start : start + n]
        if n == tile:
            out[start : start + n] = functional.linear(aligned(part), weight, bias)
        else:
            padded = x.new_zeros(tile, x.shape[-1])
            padded[:n] = part
            out[start : start + n] = functional.linear(padded, weight, bias)[:n]
    return out.reshape(*x.shape[:-1], n_out)


def row_tiles(n_rows: int, tiles: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Cover ``n_rows`` by tiles of the menu: yields (start, rows used, tile).

    A remainder that fills more than half of a tile takes that tile, padded.
    """
    start = 0
    for tile in tiles:
        while n_rows - start >= tile:
            yield start, tile, tile
            start += tile
        if 2 * (n_rows - start) > tile:
            break
    if start < n_rows:
        yield start, n_rows - start, tile
