"""Who puts byte planes together and takes them apart when much is to be moved."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Final

from kvg import codec as kvz

if TYPE_CHECKING:
    from kvg.codec import Join, Split, Target

WORTH_BYTES: Final = 64 << 20
"""From so many raw bytes on loading numpy, which does it many times as fast, takes less time than
it saves."""


def splitter(n_bytes: int) -> Split:
    """What takes the planes of ``n_bytes`` in all apart; numpy may be absent."""
    if n_bytes >= WORTH_BYTES:
        try:
            from kvg.model.planes import split_planes
        except ImportError:
            pass
        else:
            return split_planes
    return kvz.split_planes


def joiner(n_bytes: int) -> Join | None:
    """What puts the planes of ``n_bytes`` in all together; None for the decoder's own way.

    numpy is loaded when planes come: whole pages as they lie need none of it.
    """
    return _join if n_bytes >= WORTH_BYTES else None


def _join(planes: Sequence[memoryview], out: Target, n_bytes: int) -> None:
    _quickest_join()(planes, out, n_bytes)


@cache
def _quickest_join() -> Join:
    try:
        from kvg.model.planes import join_planes
    except ImportError:
        return kvz.join_in_turn
    return join_planes
