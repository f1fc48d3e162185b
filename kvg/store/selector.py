"""Selection inside a process: from a family's digest to its newest method, on one held view.

The row that is found is taken as it is: whoever uses it verifies the method and sees whether it is
of the family that was asked for, so a damaged row can't answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kvg.digest import Digest, from_raw
from kvg.store.refs import MEMBER_BYTES, METHOD

_PREFIX_CHARS: Final = len("sha256:")


class Selector:
    """``find`` costs one look-up by key; the log may have grown since, which ``size`` tells."""

    __slots__ = ("_get", "size")

    def __init__(self, get: Callable[[bytes], bytes | None], size: int) -> None:
        self._get = get
        self.size = size

    def find(self, family: Digest) -> bytes | None:
        """The 32 raw bytes of the newest method of exactly ``family``; None when it has none."""
        rows = self._get(bytes.fromhex(family[_PREFIX_CHARS:]))
        if rows is None:
            return None
        if rows[-MEMBER_BYTES : 1 - MEMBER_BYTES] == METHOD:
            return rows[-32:]
        return _newest(rows)

    def method(self, family: Digest) -> Digest | None:
        """As ``find``, as a digest."""
        raw = self.find(family)
        return None if raw is None else from_raw(raw)


def _newest(rows: bytes) -> bytes | None:
    for end in range(len(rows), MEMBER_BYTES - 1, -MEMBER_BYTES):
        row = rows[end - MEMBER_BYTES : end]
        if row[:1] == METHOD:
            return row[-32:]
    return None
