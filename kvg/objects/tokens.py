"""Token ids as stored: unsigned 32-bit little-endian integers, no header."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence

from kvg.digest import Buffer
from kvg.errors import Corrupt, UsageError

SIZE_BYTES = 4
_CODE = "I" if array("I").itemsize == SIZE_BYTES else "L"


def encode_ids(ids: Sequence[int]) -> bytes:
    """The stored bytes of ``ids``. Raises ``UsageError`` on an id outside 0 to 2^32-1."""
    try:
        words = array(_CODE, ids)
    except (OverflowError, TypeError):
        raise UsageError("token ids: not integers from 0 to 4294967295") from None
    if sys.byteorder == "big":
        words.byteswap()
    return words.tobytes()


def decode_ids(data: Buffer, *, what: str, count: int | None = None) -> tuple[int, ...]:
    """The ids stored in ``data``; exactly ``count`` of them when given. Raises ``Corrupt``."""
    size_bytes = memoryview(data).nbytes
    expected = size_bytes if count is None else count * SIZE_BYTES
    if size_bytes % SIZE_BYTES or size_bytes != expected:
        raise Corrupt(f"{what}: {size_bytes} bytes are not {_told(count)}", hint="kvg fsck")
    words = array(_CODE)
    words.frombytes(data)
    if sys.byteorder == "big":
        words.byteswap()
    return tuple(words)


def first_difference(a: Sequence[int], b: Sequence[int]) -> int | None:
    """The first index at which the two differ (one may simply end there); None when equal."""
    if tuple(a) == tuple(b):
        return None
    for index, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return index
    return min(len(a), len(b))


def _told(count: int | None) -> str:
    return "whole token ids" if count is None else f"{count} token ids"
