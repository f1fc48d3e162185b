"""Byte planes: all first bytes of the elements, then all second bytes. They pack far better."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from kvg.digest import Buffer

Split: TypeAlias = Callable[[memoryview, int], Sequence[Buffer]]
"""Gives the planes of a buffer, as ``split_planes`` does."""

Target: TypeAlias = bytearray | memoryview
Join: TypeAlias = Callable[[Sequence[memoryview], Target, int], None]
"""Puts the bytes of planes in turn into the first so many bytes of a buffer."""


def split_planes(raw: Buffer, planes: int) -> tuple[bytes, ...]:
    """``planes`` byte strings; plane p holds raw[p], raw[p + planes], …; any length of ``raw``."""
    whole = bytes(raw)
    return tuple(whole[plane::planes] for plane in range(planes))


def join_in_turn(planes: Sequence[memoryview], out: Target, n_bytes: int) -> None:
    """A ``Join`` by the interpreter alone."""
    for start, plane in enumerate(planes):
        out[start : n_bytes : len(planes)] = plane


def join_planes(*planes: Buffer) -> bytearray:
    """The bytes that ``split_planes`` made ``planes`` of.

    Raises ``ValueError`` when their lengths do not belong together.
    """
    out = bytearray(sum(len(plane) for plane in planes))
    for start, plane in enumerate(planes):
        out[start :: len(planes)] = plane
    return out
