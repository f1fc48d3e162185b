"""Element-wise functions whose bits do not depend on where an element lies in its tensor."""

from kvg_kernels.pointwise.cpu import pointwise

__all__ = ["pointwise"]
