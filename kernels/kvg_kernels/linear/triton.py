"""``linear`` in Triton: one tile shape per dtype, whatever the number of rows."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kvg_kernels.alignment import aligned
from kvg_kernels.interpreter import is_widened, store_dtype
from kvg_kernels.tiles import product_tile, tile_place, tile_product

BAND_TILES = 8


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """``x @ weight.T + bias``, each row's bits independent of how many rows there are.

    Shapes: x ``[..., K]``, weight ``[N, K]``, bias ``[N]`` or None; result ``[..., N]``, in x's
    dtype. Products are summed in fp32, the bias is added in fp32, and the sum is rounded once.
    """
    rows, weight = aligned(x.reshape(-1, x.shape[-1])), aligned(weight)
    n_rows, n_out = rows.shape[0], weight.shape[0]
    tile = product_tile(x.dtype)
    out = x.new_empty(n_rows, n_out, dtype=store_dtype(x.dtype))
    grid = (triton.cdiv(n_rows, tile.rows) * triton.cdiv(n_out, tile.columns),)
    if out.numel():
        linear_kernel[grid](
            rows,
            weight,
            weight if bias is None else aligned(bias),
            out,
            n_rows,
            n_out,
            x.shape[-1],
            HAS_BIAS=bias is not None,
            BLOCK_M=tile.rows,
            BLOCK_N=tile.columns,
            BLOCK_K=tile.depth,
            GROUP=BAND_TILES,
            WIDEN=is_widened(x.dtype),
            num_warps=tile.warps,
            num_stages=tile.stages,
            enable_fp_fusion=False,
        )
    return out.to(x.dtype).reshape(*x.shape[:-1], n_out)


@triton.jit(do_not_specialize=["n_rows"])
def linear_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    n_rows,
    n_out,
    k_size,
    HAS_BIAS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    WIDEN: tl.constexpr,
):
    """x ``[M, K]``, weight ``[N, K]``, bias ``[N]``, out ``[M, N]``, all contiguous."""
    row_tile, column_tile = tile_place(
        tl.program_id(0), tl.cdiv(n_rows, BLOCK_M), tl.cdiv(n_out, BLOCK_N), GROUP
    )
    row = (row_tile * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    column = (column_tile * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_ok = row < n_rows
    column_ok = column < n_out
    acc = tile_product(
        x_ptr + row * k_size,
        weight_ptr + column * k_size,
        row_ok,
        column_ok,
        k_size,
        1,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
        WIDEN,
    )
    if HAS_BIAS:
        acc += tl.load(bias_ptr + column, mask=column_ok, other=0.0).to(tl.float32)[None, :]
    tl.store(
        out_ptr + row[:, None] * n_out + column[None, :],
        acc,
        mask=row_ok[:, None] & column_ok[None, :],
    )
