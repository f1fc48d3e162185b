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
CHEAP_TILE = 64
"""Up to so many rows a call costs what reading the weights costs, however many there are."""


def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    tiles: Sequence[int] = (SMALL_TILE,),
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
    columns = weight.t()
    for start, n, tile in row_tiles(n_rows, tiles):
        part = rows[start : start + n]
        if n == tile:
            _product(aligned(part), columns, bias, out[start : start + n])
        else:
            padded = x.new_zeros(tile, x.shape[-1])
            padded[:n] = part
            out[start : start + n] = functional.linear(padded, weight, bias)[:n]
    return out.reshape(*x.shape[:-1], n_out)


def row_tiles(n_rows: int, tiles: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Cover ``n_rows`` by tiles of the menu: yields (start, rows used, tile).

    A remainder takes a tile, padded, that it fills more than half; a large one, whose padding costs
    more than another call, only if it fills seven eighths.
    """
    start = 0
    for tile in tiles:
        while n_rows - start >= tile:
            yield start, tile, tile
            start += tile
        rest = n_rows - start
        if 2 * rest > tile and (tile <= CHEAP_TILE or 8 * rest > 7 * tile):
            break
    if start < n_rows:
        yield start, n_rows - start, tile


def whole_rows(n_rows: int) -> int:
    """The least number of rows from ``n_rows`` up that is whole tiles of the whole menu."""
    return sum(tile for _, _, tile in row_tiles(n_rows, TILES))


def _product(
    rows: torch.Tensor, columns: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor
) -> None:
    """What ``functional.linear`` computes for a matrix, written where it belongs."""
    if bias is None:
        torch.mm(rows, columns, out=out)
    else:
        torch.addmm(bias, rows, columns, out=out)
