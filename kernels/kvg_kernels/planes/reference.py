"""The definition of ``split_planes`` and ``join_planes``, byte by byte."""

from __future__ import annotations

import torch


def split_planes_reference(raw: torch.Tensor, planes: int) -> tuple[torch.Tensor, ...]:
    """Plane p holds raw[p], raw[p + planes], …"""
    held: list[list[int]] = [[] for _ in range(planes)]
    for i, byte in enumerate(raw.tolist()):
        held[i % planes].append(byte)
    return tuple(torch.tensor(plane, dtype=torch.uint8) for plane in held)


def join_planes_reference(*planes: torch.Tensor) -> torch.Tensor:
    """The bytes that ``split_planes_reference`` made ``planes`` of."""
    total = sum(plane.numel() for plane in planes)
    held = [plane.tolist() for plane in planes]
    joined = [held[i % len(planes)][i // len(planes)] for i in range(total)]
    return torch.tensor(joined, dtype=torch.uint8)
