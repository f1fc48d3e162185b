"""What ``kvg fsck --repair`` does about faults: nothing is deleted, what is bad is moved away."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from kvg import durable
from kvg.digest import Digest, hex_of, sha256, short
from kvg.store.layout import LOST_FOUND
from kvg.verify.check import TRUST
from kvg.verify.findings import UNREADABLE
from kvg.verify.fsck import INDEX, LOCK, Repaired
from kvg.verify.strays import is_movable, leads_out

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.store import Store


MAX_LABEL_BYTES = 200
"""Of the name that a thing had, that much stays: a number is put behind it."""


def repairs(
    store: Store,
    bad: Iterable[Digest],
    strays: Iterable[Path],
    refetch: Callable[[Digest], str | None],
    *,
    rebuild: bool,
    trust: bool,
) -> Iterator[Repaired]:
    """Move away the objects that are ``bad`` and have them fetched, then the ``strays``; put back
    the trust file and rebuild the index where that is asked for."""
    is_fetched = False
    for digest in dict.fromkeys(bad):
        yield from _set_aside_object(store, digest)
        if not store.objects.has(digest):
            source = _out_of_trust_file(store, digest) or refetch(digest)
            if source is not None:
                is_fetched = True
                yield Repaired(digest, f"fetched from {source}")
    for path in strays:
        if is_movable(store, path) and os.path.lexists(path):
            moved = set_aside(store, path)
            yield Repaired(str(path.relative_to(store.root)), "moved", moved)
    if trust:
        yield from _repair_trust(store)
    if rebuild:
        store.index.rebuild(anew=True)
        yield Repaired(INDEX, "rebuilt from the log")
    elif is_fetched:
        store.index.list_again(subject for subject, _ in store.logged_envelopes())


def repair_folders(store: Store, names: Iterable[str]) -> Iterator[Repaired]:
    """Make folders again that are gone."""
    for name in names:
        durable.make_dir(store.root / name)
        yield Repaired(name, "made again")


def replace_by_folder(store: Store, name: str) -> str:
    """Move away what lies there, and make the folder; returns where it lies now."""
    path = store.root / name
    moved = set_aside(store, path)
    durable.make_dir(path)
    return moved


def repair_lock(store: Store) -> Iterator[Repaired]:
    """Move away what is no file in place of the lock: no writer can hold it."""
    path = store.root / LOCK
    if os.path.lexists(path) and not path.is_file():
        yield Repaired(LOCK, "moved", _moved_aside(store, path, LOCK))


def _repair_trust(store: Store) -> Iterator[Repaired]:
    """Put back the signed trust file that the log names, where that one is sound."""
    from kvg.store.trusted import read_file

    path = store.root / TRUST
    with store.lock.exclusive():
        try:
            versions = store.trust_versions()
            data = (
                bytes(store.objects.read(versions[-1][1], what="trust file")) if versions else b""
            )
            found = read_file(store) or b""
        except UNREADABLE:
            return
        if path.exists() and sha256(found) != (versions[-1][1] if versions else None):
            yield Repaired(TRUST, "moved", set_aside(store, path))
        if data and not path.exists():
            durable.replace(path, [data], staging=store.staging)
            yield Repaired(TRUST, "restored from the log")


def _out_of_trust_file(store: Store, digest: Digest) -> str | None:
    """Put back the object of the trust file in force from that file, which has the same bytes."""
    from kvg.store.trusted import read_file

    try:
        data = read_file(store)
    except UNREADABLE:
        return None
    if data is None or sha256(data) != digest:
        return None
    with store.pending() as pending:
        pending.put(data)
    return TRUST


def _set_aside_object(store: Store, digest: Digest) -> Iterator[Repaired]:
    """Move the object away unless a writer has put a good one in its place meanwhile."""
    with store.lock.exclusive():
        path = store.objects.stored_path(digest)
        if not os.path.lexists(path) or leads_out(store, path):
            return
        try:
            store.objects.read(digest, what=short(digest))
        except UNREADABLE:
            yield Repaired(digest, "moved", set_aside(store, path, name=hex_of(digest)))


def set_aside(store: Store, path: Path, *, name: str | None = None) -> str:
    """Move ``path`` into ``lost-found``; returns where it lies now, under the store's folder."""
    with store.lock.exclusive():
        return _moved_aside(store, path, name or path.name)


def is_lost_found_whole(store: Store) -> bool:
    """Whether the folder is one of the store's own, or not there yet."""
    folder = store.root / LOST_FOUND
    return not os.path.lexists(folder) or (folder.is_dir() and not folder.is_symlink())


def _moved_aside(store: Store, path: Path, label: str) -> str:
    folder, number = store.root / LOST_FOUND, 0
    label = os.fsdecode(os.fsencode(label)[:MAX_LABEL_BYTES])
    if path == folder:
        path = store.root / f"{LOST_FOUND}.moving"
        durable.move(folder, path)
    durable.make_dir(folder)
    while os.path.lexists(folder / f"{label}.{number}"):
        number += 1
    durable.move(path, folder / f"{label}.{number}")
    return f"{LOST_FOUND}/{label}.{number}"
