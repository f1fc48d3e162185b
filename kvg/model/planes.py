"""Byte planes put together and taken apart while in a core's cache, by vector instructions.

numpy lets go of the interpreter meanwhile, so that every core has a page of its own in hand, and
starts no threads, which torch would for pieces of this size.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvg.digest import Buffer

_WIDTHS = {2: "<u2", 4: "<u4"}
_ELEMENTS = 1 << 16
"""So many elements are taken apart at once: they and their planes stay in the cache."""


def join_planes(planes: Sequence[memoryview], out: bytearray | memoryview, n_bytes: int) -> None:
    """Put the bytes of 2 or 4 ``planes`` in turn into the first ``n_bytes`` of ``out``."""
    n = len(planes)
    whole = n_bytes // n
    if whole:
        joined = np.frombuffer(out, _WIDTHS[n], whole)
        *lower, highest = (np.frombuffer(plane, np.uint8, whole) for plane in planes)
        joined[:] = highest
        for plane in reversed(lower):
            np.left_shift(joined, 8, out=joined)
            np.bitwise_or(joined, plane, out=joined)
    for index in range(n_bytes - whole * n):
        out[whole * n + index] = planes[index][whole]


def split_planes(raw: Buffer, n_planes: int) -> tuple[memoryview, ...]:
    """As ``kvg.codec.split_planes``, of 2 or 4 planes."""
    elements = np.frombuffer(raw, _WIDTHS[n_planes], len(raw) // n_planes)
    rest = bytes(raw[len(elements) * n_planes :])
    planes = [np.empty(len(elements) + (p < len(rest)), np.uint8) for p in range(n_planes)]
    shifted = np.empty(min(_ELEMENTS, len(elements)), elements.dtype)
    for start in range(0, len(elements), _ELEMENTS):
        piece = elements[start : start + _ELEMENTS]
        end, moved = start + len(piece), shifted[: len(piece)]
        np.copyto(planes[0][start:end], piece, casting="unsafe")
        for index, plane in enumerate(planes[1:], 1):
            np.right_shift(piece, 8 * index, out=moved)
            np.copyto(plane[start:end], moved, casting="unsafe")
    for index, byte in enumerate(rest):
        planes[index][-1] = byte
    return tuple(plane.data for plane in planes)
