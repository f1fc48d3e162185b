"""Byte planes: all first bytes of the elements, then all second bytes."""

from __future__ import annotations

import torch

from kvg_kernels.planes import cpu
from kvg_kernels.planes.reference import join_planes_reference, split_planes_reference

__all__ = ["join_planes", "join_planes_reference", "split_planes", "split_planes_reference"]


def split_planes(raw: torch.Tensor, planes: int) -> tuple[torch.Tensor, ...]:
    """``planes`` byte tensors; plane p holds raw[p], raw[p + planes], …; any length of ``raw``.

    Shapes: raw ``[n]`` of uint8; plane p ``[ceil((n - p) / planes)]``. Raises ``ValueError`` for
    another dtype or shape, or a number of planes that is not 1, 2, 4 or 8.
    """
    check_raw(raw, planes)
    if raw.is_cuda:
        from kvg_kernels.planes.triton import split_planes as on_gpu

        return on_gpu(raw, planes)
    return cpu.split_planes(raw, planes)


def join_planes(*planes: torch.Tensor) -> torch.Tensor:
    """The bytes that ``split_planes`` made ``planes`` of.

    Raises ``ValueError`` when their lengths do not belong together.
    """
    check_planes(planes)
    if planes[0].is_cuda:
        from kvg_kernels.planes.triton import join_planes as on_gpu

        return on_gpu(*planes)
    return cpu.join_planes(*planes)


def check_raw(raw: torch.Tensor, planes: int) -> None:
    """Raise ``ValueError`` unless ``raw`` is flat bytes and ``planes`` an element size."""
    if raw.dtype is not torch.uint8 or raw.dim() != 1:
        raise ValueError(f"{raw.dtype} of shape {tuple(raw.shape)}: flat uint8 is due")
    if planes not in (1, 2, 4, 8):
        raise ValueError(f"{planes} planes: 1, 2, 4 or 8 are due")


def check_planes(planes: tuple[torch.Tensor, ...]) -> None:
    """Raise ``ValueError`` unless the lengths are those that a split gives."""
    total = sum(plane.numel() for plane in planes)
    for p, plane in enumerate(planes):
        check_raw(plane, len(planes))
        if plane.numel() != -(-(total - p) // len(planes)):
            raise ValueError(f"plane {p} of {len(planes)}: {plane.numel()} bytes do not belong")
    if not planes:
        raise ValueError("no planes to join")
