"""``bmm`` and ``baddbmm`` in Triton: the tiles of ``linear``, one item per program."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kvg_kernels.alignment import aligned
from kvg_kernels.interpreter import is_widened, store_dtype
from kvg_kernels.tiles import product_tile, tile_product


def bmm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """``a @ b`` per item. Shapes: a ``[B, M, K]``, b ``[B, K, N]``; result ``[B, M, N]``."""
    return _product(None, a, b, 0.0, 1.0)


def baddbmm(
    bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """``beta * bias + alpha * (a @ b)``: added in fp32, rounded once; bias broadcasts."""
    return _product(bias, a, b, float(beta), float(alpha))


def _product(
    bias: torch.Tensor | None, a: torch.Tensor, b: torch.Tensor, beta: float, alpha: float
) -> torch.Tensor:
    n_items, n_rows, k_size = a.shape
    n_out = b.shape[2]
    a = aligned(a)
    b = b if b.mT.is_contiguous() else aligned(b)
    out = a.new_empty(n_items, n_rows, n_out, dtype=store_dtype(a.dtype))
    added = a if bias is None else bias.expand(out.shape)
    tile = product_tile(a.dtype)
    grid = (triton.cdiv(n_rows, tile.rows), triton.cdiv(n_out, tile.columns), n_items)
    if out.numel():
        bmm_kernel[grid](
            added,
            a,
            b,
            out,
            n_rows,
            n_out,
            k_size,
            *added.stride(),
            *b.stride(),
            alpha,
            beta,
            HAS_BIAS=bias is not None,
            BLOCK_M=tile.rows,
            BLOCK_N=tile.columns,
            BLOCK_K=tile.depth,
            WIDEN=is_widened(a.dtype),
            num_warps=tile.warps,
            num_stages=tile.stages,
            enable_fp_fusion=False,
        )
    return out.to(a.dtype)


@triton.jit(
    do_not_specialize=["n_rows", "bias_item", "bias_row", "bias_column"],
    do_not_specialize_on_alignment=["bias_ptr"],
)
def bmm_kernel(
    bias_ptr,
    a_ptr,
    b_ptr,
    out_ptr,
    n_rows,
    n_out,
    k_size,
    bias_item,
    bias_row,
    bias_column,
    b_item,
    b_k,
    b_column,
    alpha,
    beta,
    HAS_BIAS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    WIDEN: tl.constexpr,
):
    """a ``[B, M, K]`` and out ``[B, M, N]`` contiguous; b and bias by their strides."""
    item = tl.program_id(2).to(tl.int64)
    row = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    column = (tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_ok = row < n_rows
    column_ok = column < n_out
    ok = row_ok[:, None] & column_ok[None, :]
    acc = tile_product(
        a_ptr + (item * n_rows + row) * k_size,
        b_ptr + item * b_item + column * b_column,
        row_ok,
        column_ok,
        k_size,
        b_k,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
        WIDEN,
    )
    if HAS_BIAS:
        place = item * bias_item + row[:, None] * bias_row + column[None, :] * bias_column
        added = tl.load(bias_ptr + place, mask=ok, other=0.0).to(tl.float32)
        acc = acc * alpha + added * beta
    tl.store(out_ptr + (item * n_rows + row[:, None]) * n_out + column[None, :], acc, mask=ok)
