"""Where a tensor lies in memory: some CPU kernels give other bits at another alignment."""

from __future__ import annotations

import torch

ALIGNMENT_BYTES = 64


def is_aligned(tensor: torch.Tensor) -> bool:
    """Whether the first element of ``tensor`` lies on a 64-byte boundary."""
    return tensor.data_ptr() % ALIGNMENT_BYTES == 0


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor`` itself when it is contiguous on a 64-byte boundary, else a copy that is."""
    if tensor.is_contiguous() and is_aligned(tensor):
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)
