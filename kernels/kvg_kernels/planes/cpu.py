"""``split_planes`` and ``join_planes`` on a CPU: strided copies."""

from __future__ import annotations

import torch


def split_planes(raw: torch.Tensor, planes: int) -> tuple[torch.Tensor, ...]:
    """Plane p holds raw[p], raw[p + planes], …; every plane is a copy."""
    return tuple(
        raw[plane::planes].clone(memory_format=torch.contiguous_format) for plane in range(planes)
    )


def join_planes(*planes: torch.Tensor) -> torch.Tensor:
    """The bytes that ``split_planes`` made ``planes`` of."""
    out = planes[0].new_empty(sum(plane.numel() for plane in planes))
    for start, plane in enumerate(planes):
        out[start :: len(planes)] = plane
    return out
