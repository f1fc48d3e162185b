"""``softmax`` in Triton: one program per row, which walks fixed tiles in ascending order."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kvg_kernels.alignment import aligned
from kvg_kernels.interpreter import store_dtype

BLOCK_COLUMNS = 1024
WARPS = 4


def softmax(x: torch.Tensor, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Softmax along the last dimension in fp32. Shapes: x ``[..., N]``; result alike."""
    rows = aligned(x.reshape(-1, x.shape[-1]))
    result = dtype or x.dtype
    out = torch.empty_like(rows, dtype=store_dtype(result))
    if out.numel():
        softmax_kernel[(rows.shape[0],)](
            rows,
            out,
            rows.shape[1],
            BLOCK=BLOCK_COLUMNS,
            num_warps=WARPS,
            enable_fp_fusion=False,
        )
    return out.to(result).reshape(x.shape)


@triton.jit(do_not_specialize=["n_columns"])
def softmax_kernel(x_ptr, out_ptr, n_columns, BLOCK: tl.constexpr):
    """x and out ``[rows, n_columns]``.

    Lane i adds up the columns i, i + BLOCK, … in that order and the lanes are added last, so
    columns of -inf at the end only ever add zero.
    """
    row = tl.program_id(0).to(tl.int64) * n_columns
    lane = tl.arange(0, BLOCK)
    tops = tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in range(0, n_columns, BLOCK):
        column = start + lane
        x = tl.load(x_ptr + row + column, mask=column < n_columns, other=float("-inf"))
        tops = tl.maximum(tops, x.to(tl.float32))
    top = tl.max(tops, 0)
    sums = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_columns, BLOCK):
        column = start + lane
        x = tl.load(x_ptr + row + column, mask=column < n_columns, other=float("-inf"))
        sums += tl.exp(x.to(tl.float32) - top)
    total = tl.sum(sums, 0)
    for start in range(0, n_columns, BLOCK):
        column = start + lane
        ok = column < n_columns
        x = tl.load(x_ptr + row + column, mask=ok, other=float("-inf"))
        weight = tl.exp(x.to(tl.float32) - top)
        tl.store(out_ptr + row + column, tl.div_rn(weight, total), mask=ok)
