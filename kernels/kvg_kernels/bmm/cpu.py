"""``bmm`` and ``baddbmm`` on a CPU: item by item, in one size of row tile.

A batched product of the library shares the batch out among its kernels, so an item's bits can
follow from the size of the batch. Here every item is a product of its own, of a fixed shape. No
self-check looks at these products, so other tiles of ``linear``'s menu are for who has proved them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kvg_kernels.alignment import aligned, is_aligned
from kvg_kernels.linear.cpu import SMALL_TILE, row_tiles

ONE_TILE = (SMALL_TILE,)


def bmm(a: torch.Tensor, b: torch.Tensor, *, tiles: Sequence[int] = ONE_TILE) -> torch.Tensor:
    """``a @ b`` per item. Shapes: a ``[B, M, K]``, b ``[B, K, N]``; result ``[B, M, N]``."""
    out = a.new_empty(a.shape[0], a.shape[1], b.shape[2])
    for item in range(a.shape[0]):
        factor = _settled(b[item])
        for start, n, tile in row_tiles(a.shape[1], tiles):
            rows = _padded(a[item, start : start + n], tile)
            out[item, start : start + n] = torch.mm(rows, factor)[:n]
    return out


def baddbmm(
    bias: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    tiles: Sequence[int] = ONE_TILE,
) -> torch.Tensor:
    """``beta * bias + alpha * (a @ b)`` per item; bias broadcasts to the result's shape."""
    out = a.new_empty(a.shape[0], a.shape[1], b.shape[2])
    wide = bias.expand(out.shape)
    for item in range(a.shape[0]):
        factor = _settled(b[item])
        for start, n, tile in row_tiles(a.shape[1], tiles):
            rows = _padded(a[item, start : start + n], tile)
            added = _padded(wide[item, start : start + n], tile)
            product = torch.addmm(added, rows, factor, beta=beta, alpha=alpha)
            out[item, start : start + n] = product[:n]
    return out


def _padded(rows: torch.Tensor, tile: int) -> torch.Tensor:
    """``rows`` with zeros below them up to ``tile`` rows, contiguous and aligned."""
    if rows.shape[0] == tile:
        return aligned(rows)
    padded = rows.new_zeros(tile, rows.shape[1])
    padded[: rows.shape[0]] = rows
    return padded


def _settled(factor: torch.Tensor) -> torch.Tensor:
    """``factor`` ``[K, N]`` aligned, rows or columns contiguous; copied only if it is neither."""
    if factor.mT.is_contiguous() and not factor.is_contiguous():
        return factor if is_aligned(factor) else aligned(factor.mT).mT
    return aligned(factor)
