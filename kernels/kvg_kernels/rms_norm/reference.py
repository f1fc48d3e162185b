"""The definition of ``rms_norm``, one row at a time, in the dtype of its input or float64."""

from __future__ import annotations

import torch


def rms_norm_reference(x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    """``x / sqrt(mean(x²) + eps) * weight``. Shapes: x ``[..., D]``, weight ``[D]`` or None."""
    rows = x.reshape(-1, x.shape[-1])
    out = torch.empty_like(rows)
    for i, row in enumerate(rows):
        scaled = row / torch.sqrt(row.square().mean() + eps)
        out[i] = scaled if weight is None else scaled * weight
    return out.reshape(x.shape)
