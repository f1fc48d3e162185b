"""One output tile of a matrix product in Triton: the only place where K is walked.

Imported by the ``triton.py`` modules only.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl


@dataclass(frozen=True, slots=True)
class ProductTile:
    """The one tile of a dtype. Nothing about it may follow from the number of rows."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


TILES = {
    torch.bfloat16: ProductTile(rows=128, columns=128, depth=64, warps=8, stages=3),
    torch.float16: ProductTile(rows=128, columns=128, depth=64, warps=8, stages=3),
    torch.float32: ProductTile(rows=128, columns=128, depth=32, warps=8, stages=2),
}
"""Rows, columns and depth of a tile, by the dtype of the factors."""


def product_tile(dtype: torch.dtype) -> ProductTile:
    """The tile of ``dtype``; raises ``TypeError`` for one that has none."""
    if dtype not in TILES:
        raise TypeError(f"{dtype}: no product tile; bfloat16, float16 and float32 have one")
    return TILES[dtype]


@triton.jit
def tile_product(
    a_rows,
    b_columns,
    row_ok,
    column_ok,
    k_size,
    b_stride_k,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    WIDEN: tl.constexpr,
):
    """fp32 ``[BLOCK_M, BLOCK_N]``: K walked once, by BLOCK_K, ascending, into one accumulator.

    ``a_rows`` points to row starts (K contiguous), ``b_columns`` to column starts. Rows and
    columns that are not there are zeros, so every tile does the same work.
    """
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(0, tl.cdiv(k_size, BLOCK_K)):
        k = step * BLOCK_K + tl.arange(0, BLOCK_K)
        k_ok = k < k_size
        a = tl.load(a_rows[:, None] + k[None, :], mask=row_ok[:, None] & k_ok[None, :], other=0.0)
        b = tl.load(
            b_columns[None, :] + k[:, None].to(tl.int64) * b_stride_k,
            mask=k_ok[:, None] & column_ok[None, :],
            other=0.0,
        )
        if WIDEN:
            a = a.to(tl.float32)
            b = b.to(tl.float32)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    return acc


@triton.jit
def tile_place(pid, n_row_tiles, n_column_tiles, GROUP: tl.constexpr):
    """Which tile a program works on: bands of GROUP row tiles share the columns in the cache."""
    band = pid // (GROUP * n_column_tiles)
    first = band * GROUP
    height = tl.minimum(n_row_tiles - first, GROUP)
    within = pid % (GROUP * n_column_tiles)
    return first + within % height, within // height
