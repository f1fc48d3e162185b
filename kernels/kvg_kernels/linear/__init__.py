"""Linear layers in row tiles that do not follow from the number of rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kvg_kernels.alignment import aligned
from kvg_kernels.linear.cpu import SMALL_TILE, TILES, whole_rows
from kvg_kernels.linear.cpu import linear as _on_cpu
from kvg_kernels.linear.packed import PACKED_TILES, PackedWeight, can_pack, pack, packed_linear
from kvg_kernels.linear.reference import linear_reference

__all__ = [
    "PACKED_TILES",
    "SMALL_TILE",
    "TILES",
    "PackedWeight",
    "can_pack",
    "linear",
    "linear_reference",
    "pack",
    "packed_linear",
    "whole_rows",
]


def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    tiles: Sequence[int] = (SMALL_TILE,),
) -> torch.Tensor:
    """``x @ weight.T + bias``, each row's bits independent of how many rows there are.

    Shapes: x ``[..., K]``, weight ``[N, K]``, bias ``[N]`` or None; result ``[..., N]``, in x's
    dtype. ``weight`` and ``bias`` are copied where they are not contiguous on a 64-byte boundary.
    ``tiles`` are the row tiles of a CPU that were proved equal there, of ``TILES``; by default the
    one that the others are compared with. A GPU has one tile per dtype.
    """
    if x.is_cuda:
        from kvg_kernels.linear.triton import linear as on_gpu

        return on_gpu(x, weight, bias)
    added = None if bias is None else aligned(bias)
    return _on_cpu(x, aligned(weight), added, tiles=tiles)
