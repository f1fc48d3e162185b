"""``softmax`` on a CPU: a maximum (exact in any order) and a fixed tree of additions."""

from __future__ import annotations

import torch

from kvg_kernels.pointwise import pointwise
from kvg_kernels.tree import tree_sum


def softmax(x: torch.Tensor, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Softmax along the last dimension in fp32. Shapes: x ``[..., N]``; result alike."""
    wide = x.float()
    weights = pointwise(torch.exp, wide - wide.amax(-1, keepdim=True))
    return (weights / tree_sum(weights)).to(dtype or x.dtype)
