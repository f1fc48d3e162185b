"""Element-wise functions on a CPU.

A vectorised loop computes whole vectors with one implementation of ``exp`` or ``cos`` and the
elements left over with another, and the two differ in the last bit. Which elements are left over
depends on the length of the tensor and on how it was shared out among threads. Here every length
that a thread gets is a whole number of vectors, so the second implementation never runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from kvg_kernels.alignment import is_aligned

VECTOR_ELEMENTS = 128
"""A multiple of every vector that the element-wise kernels work on at once."""
GRAIN_ELEMENTS = 32_768
"""Elements below which torch does not share the work out among threads (``at::internal``)."""
SHARED_ELEMENTS = 0x2000
"""Elements up to which nothing is shared: above twice as many torch's kernel of ``gelu`` shares
them out among all threads, evenly."""


def pointwise(op: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """``op(x)`` for an element-wise ``op``; each element's bits depend on its value alone.

    Shapes: any x; the result has x's shape and is contiguous.
    """
    n = x.numel()
    padded = padded_length(n, torch.get_num_threads())
    if padded == n and x.is_contiguous() and is_aligned(x):
        return op(x)
    flat = x.new_zeros(padded)
    flat[:n] = x.reshape(-1)
    return op(flat)[:n].reshape(x.shape)


def padded_length(n: int, threads: int) -> int:
    """The least length from ``n`` up at which every thread's share is whole vectors, by either
    rule of sharing."""
    length = -(-n // VECTOR_ELEMENTS) * VECTOR_ELEMENTS
    while True:
        shares = min(threads, -(-length // GRAIN_ELEMENTS)) or 1
        evenly = threads if length > SHARED_ELEMENTS else 1
        unit = VECTOR_ELEMENTS * math.lcm(shares, evenly)
        if length % unit == 0:
            return length
        length = -(-length // unit) * unit
