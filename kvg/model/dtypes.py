"""The dtypes of pages, by their safetensors names, as torch knows them."""

from __future__ import annotations

import torch

from kvg.digest import Digest, sha256
from kvg.errors import Incompatible

TORCH_DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
_NAMES = {dtype: name for name, dtype in TORCH_DTYPES.items()}


def dtype_name(dtype: torch.dtype) -> str:
    """The safetensors name of ``dtype``. Raises ``Incompatible`` on one that pages do not hold."""
    if dtype not in _NAMES:
        raise Incompatible(
            f"dtype {dtype}: pages hold BF16, F16 or F32", hint="kvg model add --dtype"
        )
    return _NAMES[dtype]


def raw_bytes(tensor: torch.Tensor) -> memoryview:
    """The bytes of ``tensor`` in row order, as they lie in memory."""
    flat = tensor.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8)
    return memoryview(flat.numpy().data)


def tensor_digest(tensor: torch.Tensor) -> Digest:
    """The digest of the raw bytes of ``tensor``, before any cast."""
    return sha256(raw_bytes(tensor))
