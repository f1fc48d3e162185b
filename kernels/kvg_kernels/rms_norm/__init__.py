"""Root-mean-square normalisation with one fixed order of summation in every row."""

from __future__ import annotations

import torch

from kvg_kernels.rms_norm import cpu
from kvg_kernels.rms_norm.reference import rms_norm_reference

__all__ = ["rms_norm", "rms_norm_reference"]


def rms_norm(x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    """``x / sqrt(mean(x²) + eps) * weight`` along the last dimension, rounded once.

    Shapes: x ``[..., D]``, weight ``[D]`` or None; result like x. Computed in fp32; each row's
    bits depend on that row and the weight alone.
    """
    if x.is_cuda:
        from kvg_kernels.rms_norm.triton import rms_norm as on_gpu

        return on_gpu(x, weight, eps)
    return cpu.rms_norm(x, weight, eps)
