"""Who puts byte planes together and takes them apart when much is to be moved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kvg import codec as kvz

if TYPE_CHECKING:
    from kvg.codec import Join, Split

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
    """What puts the planes of ``n_bytes`` in all together; None for the decoder's own way."""
    if n_bytes >= WORTH_BYTES:
        try:
            from kvg.model.planes import join_planes
        except ImportError:
            pass
        else:
            return join_planes
    return None
