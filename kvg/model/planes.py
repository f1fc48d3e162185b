"""Byte planes put together while they are in a core's cache, by vector instructions.

numpy lets go of the interpreter meanwhile, so that every core has a page of its own in hand, and
starts no threads, which torch would for pieces of this size.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_WIDTHS = {2: "<u2", 4: "<u4"}


def join_planes(planes: Sequence[memoryview], out: bytearray, n_bytes: int) -> None:
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
