"""``rms_norm`` on a CPU: a fixed tree of additions, and correctly rounded operations around it."""

from __future__ import annotations

import torch

from kvg_kernels.tree import tree_sum


def rms_norm(x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    """``x / sqrt(mean(x²) + eps) * weight``. Shapes: x ``[..., D]``, weight ``[D]`` or None.

    Division and square root are correctly rounded by IEEE 754, ``rsqrt`` is not: hence their use.
    """
    wide = x.float()
    mean = tree_sum(wide * wide) / x.shape[-1]
    out = wide / torch.sqrt(mean + eps)
    if weight is not None:
        out = out * weight.float()
    return out.to(x.dtype)
