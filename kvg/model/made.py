"""Numbers that anyone can make again: inputs that follow from a label alone."""

from __future__ import annotations

import torch

from kvg.digest import shake256
from kvg.model.state import zeros_aligned

LABEL = "kvg.probe/1"
"""What every label begins with."""
PATTERN_ELEMENTS = 1 << 18
"""Elements drawn per input; longer inputs repeat them."""


def made_input(label: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """An aligned tensor of ``shape`` whose elements follow from ``label`` alone."""
    total = 1
    for size in shape:
        total *= size
    n = min(total, PATTERN_ELEMENTS)
    words = torch.frombuffer(
        bytearray(shake256(f"{LABEL} {label}".encode(), 2 * n)), dtype=torch.uint16
    )
    pattern = (words.to(torch.float32) / 32768 - 1).to(dtype)
    out = zeros_aligned(shape, dtype, torch.device("cpu"))
    flat = out.view(-1)
    for start in range(0, total, n):
        part = flat[start : start + n]
        part.copy_(pattern[: part.numel()])
    return out
