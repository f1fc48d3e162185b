"""The definition of ``bmm`` and ``baddbmm``: one item and one row at a time."""

from __future__ import annotations

import torch


def bmm_reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """``a @ b`` per item. Shapes: a ``[B, M, K]``, b ``[B, K, N]``; result ``[B, M, N]``."""
    out = a.new_empty(a.shape[0], a.shape[1], b.shape[2])
    for item in range(a.shape[0]):
        for row in range(a.shape[1]):
            out[item, row] = (a[item, row].unsqueeze(-1) * b[item]).sum(0)
    return out


def baddbmm_reference(
    bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """``beta * bias + alpha * (a @ b)``. Shapes as for ``bmm_reference``; bias broadcasts."""
    return beta * bias + alpha * bmm_reference(a, b)
