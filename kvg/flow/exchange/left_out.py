"""Which refs of a remote the last look at them had to leave out, so that ``kvg status`` tells.

A note under ``tmp``, a JSON list of names, for each remote; gone once nothing is left out. What was
refused is in no log, so nothing else here knows that the remote has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kvg import canon, durable
from kvg.errors import Corrupt, Incompatible, NotFound

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.store import Store

FOLDER: Final = "left-out"
MAX_NOTE_BYTES: Final = 64 << 20


def left_out(store: Store, remote: str) -> frozenset[str]:
    """The refs of ``remote`` that were refused when they were last looked at."""
    path = _path(store, remote)
    try:
        with durable.translated(path), open(path, "rb", opener=durable.plain) as file:
            found = canon.decode(file.read(MAX_NOTE_BYTES), what=str(path))
        return frozenset(canon.as_str(n, what="") for n in canon.as_list(found, what=""))
    except (NotFound, Corrupt, Incompatible):
        return frozenset()


def note_left_out(
    store: Store, remote: str, refused: Iterable[str], *, looked_at: Iterable[str] | None
) -> None:
    """Of the refs ``looked_at`` (None: all there) ``refused`` were left out.

    Use it while holding ``store.exchange``.
    """
    old = left_out(store, remote)
    kept = frozenset() if looked_at is None else old - frozenset(looked_at)
    new = kept | frozenset(refused)
    path = _path(store, remote)
    if new and new != old:
        durable.make_dir(path.parent, is_named_for_good=False)
        durable.replace(path, [canon.encode(sorted(new))], staging=store.staging)
    elif not new and path.exists():
        durable.remove(path)


def _path(store: Store, remote: str) -> Path:
    return store.staging / FOLDER / remote
