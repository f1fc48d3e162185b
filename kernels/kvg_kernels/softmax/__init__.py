"""Softmax with one fixed order of summation in every row."""

from __future__ import annotations

import torch

from kvg_kernels.softmax import cpu
from kvg_kernels.softmax.reference import softmax_reference

__all__ = ["softmax", "softmax_reference"]


def softmax(x: torch.Tensor, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Softmax along the last dimension, computed in fp32, in ``dtype`` (that of x when None).

    Shapes: x ``[..., N]``; result alike. Each row's bits depend on that row alone, and columns of
    -inf appended to a row leave its other columns as they are: a token that is not seen yet, or is
    masked, changes nothing.
    """
    if x.is_cuda:
        from kvg_kernels.softmax.triton import softmax as on_gpu

        return on_gpu(x, dtype=dtype)
    return cpu.softmax(x, dtype=dtype)
