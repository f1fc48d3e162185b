"""The definition of ``pointwise``: every element in whole vectors of its own."""

from __future__ import annotations

from collections.abc import Callable

import torch

from kvg_kernels.pointwise.cpu import VECTOR_ELEMENTS


def pointwise_reference(
    op: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor
) -> torch.Tensor:
    """``op(x)``, each element computed on its own. Shapes: any x; the result has x's shape."""
    values = [op(element.expand(VECTOR_ELEMENTS).contiguous())[0] for element in x.reshape(-1)]
    return torch.stack(values).reshape(x.shape) if values else op(x)
