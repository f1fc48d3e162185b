"""``rms_norm`` in Triton: one program per row, the row in one tile."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kvg_kernels.alignment import aligned
from kvg_kernels.interpreter import store_dtype

WARPS = 4


def rms_norm(x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    """``x / sqrt(mean(x²) + eps) * weight``. Shapes: x ``[..., D]``, weight ``[D]`` or None."""
    rows = aligned(x.reshape(-1, x.shape[-1]))
    out = torch.empty_like(rows, dtype=store_dtype(x.dtype))
    if out.numel():
        rms_norm_kernel[(rows.shape[0],)](
            rows,
            rows if weight is None else aligned(weight),
            out,
            eps,
            SIZE=x.shape[-1],
            HAS_WEIGHT=weight is not None,
            BLOCK=triton.next_power_of_2(x.shape[-1]),
            num_warps=WARPS,
            enable_fp_fusion=False,
        )
    return out.to(x.dtype).reshape(x.shape)


@triton.jit
def rms_norm_kernel(
    x_ptr,
    weight_ptr,
    out_ptr,
    eps,
    SIZE: tl.constexpr,
    HAS_WEIGHT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """x and out ``[rows, SIZE]``, weight ``[SIZE]``."""
    row = tl.program_id(0).to(tl.int64) * SIZE
    column = tl.arange(0, BLOCK)
    ok = column < SIZE
    x = tl.load(x_ptr + row + column, mask=ok, other=0.0).to(tl.float32)
    mean = tl.sum(x * x, 0) / SIZE
    out = tl.div_rn(x, tl.sqrt_rn(mean + eps))
    if HAS_WEIGHT:
        out = out * tl.load(weight_ptr + column, mask=ok, other=0.0).to(tl.float32)
    tl.store(out_ptr + row + column, out, mask=ok)
