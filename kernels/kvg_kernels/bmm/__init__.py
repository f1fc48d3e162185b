"""Batched products (experts) in row tiles that do not follow from the rows or the batch."""

from __future__ import annotations

import torch

from kvg_kernels.bmm import cpu
from kvg_kernels.bmm.reference import baddbmm_reference, bmm_reference

__all__ = ["baddbmm", "baddbmm_reference", "bmm", "bmm_reference"]


def bmm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """``a @ b`` per item, each row's bits independent of the other rows and items.

    Shapes: a ``[B, M, K]``, b ``[B, K, N]``; result ``[B, M, N]``, in a's dtype. How b's items
    lie in memory (rows or columns contiguous) may change bits; a model's weights lie one way.
    """
    if a.is_cuda:
        from kvg_kernels.bmm.triton import bmm as on_gpu

        return on_gpu(a, b)
    return cpu.bmm(a, b)


def baddbmm(
    bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """``beta * bias + alpha * (a @ b)`` per item, with the promise of ``bmm``.

    Shapes: bias broadcasts to ``[B, M, N]``, a ``[B, M, K]``, b ``[B, K, N]``; result
    ``[B, M, N]``, in a's dtype.
    """
    if a.is_cuda:
        from kvg_kernels.bmm.triton import baddbmm as on_gpu

        return on_gpu(bias, a, b, beta=beta, alpha=alpha)
    return cpu.baddbmm(bias, a, b, beta=beta, alpha=alpha)
