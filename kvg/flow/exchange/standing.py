"""How a ref here stands to the same ref on a remote, by the order in which this log saw both move.

The log here holds one's own moves of ``REF`` and, as ``REMOTE/REF``, what the remote had each time
that it was looked at. So it says which of the two moved last: a value alone does not, for a ref may
go back to one that it had before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvg.errors import NotFound

if TYPE_CHECKING:
    from kvg.digest import Digest
    from kvg.store import Store
    from kvg.store.refs import Move


def is_followed(store: Store, name: str, tracking: str) -> bool:
    """Whether the remote had what ``name`` is here, when that was set or later.

    Then ``name`` was not moved here since, and whatever else the remote has now came after it.
    """
    own = _moves(store, name)
    if not own:
        return False
    for seen in _moves(store, tracking):
        if seen.digest == own[0].digest:
            return True
        if seen.index < own[0].index:
            return False  # what the remote had as the ref was set here: another value
    return False


def was_here(store: Store, name: str, digest: Digest) -> bool:
    """Whether ``name`` ever was ``digest`` here."""
    return any(move.digest == digest for move in _moves(store, name))


def _moves(store: Store, name: str) -> Sequence[Move]:
    """Every move of a ref, the newest first; none of one that never was."""
    try:
        return store.history(name)
    except NotFound:
        return ()
