"""The definition of ``softmax``, one row at a time, in the dtype of its input or float64."""

from __future__ import annotations

import torch


def softmax_reference(x: torch.Tensor) -> torch.Tensor:
    """``exp(x - max) / sum(exp(x - max))`` along the last dimension. Shapes: x ``[..., N]``."""
    rows = x.reshape(-1, x.shape[-1])
    out = torch.empty_like(rows)
    for i, row in enumerate(rows):
        weights = torch.exp(row - row.max())
        out[i] = weights / weights.sum()
    return out.reshape(x.shape)
