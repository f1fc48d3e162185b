"""Element-wise functions whose bits do not depend on where an element lies in its tensor."""

from __future__ import annotations

from collections.abc import Callable

import torch

from kvg_kernels.pointwise.cpu import pointwise as _on_cpu
from kvg_kernels.pointwise.reference import pointwise_reference

__all__ = ["pointwise", "pointwise_reference"]


def pointwise(op: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """``op(x)`` for an element-wise ``op``; each element's bits depend on its value alone.

    Shapes: any x; the result has x's shape and is contiguous. A GPU runs one and the same code
    for every element, so there ``op`` is called as it is.
    """
    if x.is_cuda:
        return op(x.contiguous())
    return _on_cpu(op, x)
