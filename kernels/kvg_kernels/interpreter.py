"""What the Triton interpreter gets wrong, and how the kernels step around it.

Imported by the ``triton.py`` modules only. Under ``TRITON_INTERPRET=1`` a bf16 ``tl.dot`` is wrong,
an fp16 one is slow, and a bf16 store truncates: there, tiles are widened to fp32 first, and bf16
results are stored in fp32 for torch to round. On a GPU nothing is widened.
"""

from __future__ import annotations

import torch
import triton


def is_interpreted() -> bool:
    """Whether kernels run in Triton's interpreter, on the CPU."""
    return bool(triton.knobs.runtime.interpret)


def is_widened(dtype: torch.dtype) -> bool:
    """Whether tiles of ``dtype`` are turned into fp32 before they are multiplied."""
    return dtype.itemsize == 2 and is_interpreted()


def store_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which a kernel stores a result that is to have ``dtype``."""
    return torch.float32 if dtype is torch.bfloat16 and is_interpreted() else dtype
