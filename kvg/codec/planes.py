"""Byte planes: all first bytes of the elements, then all second bytes. They pack far better."""

from __future__ import annotations

from kvg.digest import Buffer


def split_planes(raw: Buffer, planes: int) -> tuple[bytes, ...]:
    """``planes`` byte strings; plane p holds raw[p], raw[p + planes], …; any length of ``raw``."""
    whole = bytes(raw)
    return tuple(whole[plane::planes] for plane in range(planes))


def join_planes(*planes: Buffer) -> bytearray:
    """The bytes that ``split_planes`` made ``planes`` of.

    Raises ``ValueError`` when their lengths do not belong together.
    """
    out = bytearray(sum(len(plane) for plane in planes))
    for start, plane in enumerate(planes):
        out[start :: len(planes)] = plane
    return out
