"""Which refs of a remote the last look at them had to leave out, and which are no more there.

Two notes under ``tmp`` for each remote, a JSON list of names each, gone once it would be empty.
``kvg status`` tells what was left out: that was refused, is in no log, and nothing else here knows
that the remote has it. What was taken off a remote is not put back there by a push that names no
ref.
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
TAKEN_OFF: Final = "taken-off"
MAX_NOTE_BYTES: Final = 64 << 20


def left_out(store: Store, remote: str) -> frozenset[str]:
    """The refs of ``remote`` that were refused when they were last looked at."""
    return _noted(_path(store, FOLDER, remote))


def taken_off(store: Store, remote: str) -> frozenset[str]:
    """The refs that ``remote`` had, and had no more when it was last looked at."""
    return _noted(_path(store, TAKEN_OFF, remote))


def _noted(path: Path) -> frozenset[str]:
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
    _note(store, _path(store, FOLDER, remote), old, kept | frozenset(refused))


def note_taken_off(
    store: Store, remote: str, *, gone: Iterable[str] = (), there: Iterable[str] | None = ()
) -> None:
    """``gone`` were taken off ``remote``; ``there`` (None: whatever was noted) are not any more.

    Use it while holding ``store.exchange``.
    """
    old = taken_off(store, remote)
    kept = frozenset() if there is None else old - frozenset(there)
    _note(store, _path(store, TAKEN_OFF, remote), old, kept | frozenset(gone))


def _note(store: Store, path: Path, old: frozenset[str], new: frozenset[str]) -> None:
    if new and new != old:
        durable.make_dir(path.parent, is_named_for_good=False)
        durable.replace(path, [canon.encode(sorted(new))], staging=store.staging)
    elif not new and path.exists():
        durable.remove(path)


def _path(store: Store, folder: str, remote: str) -> Path:
    return store.staging / folder / remote
