"""``kvg remote``: the places that a store exchanges with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kvg.errors import Conflict, UsageError
from kvg.flow.exchange.contact import key_line, offers, publishers
from kvg.flow.exchange.left_out import note_left_out, note_taken_off
from kvg.flow.exchange.places import (
    DEFAULT_CODEC,
    SECTION,
    check_other,
    check_remote_name,
    find_place,
    opened,
)
from kvg.flow.exchange.reading import Reader
from kvg.flow.records.exchange import OfferedKey, RemoteEntry, RemoteRefEntry
from kvg.flow.records.findings import Finding
from kvg.remote.address import check_address, shown, split_scheme
from kvg.store import ANY, RefMove

if TYPE_CHECKING:
    from kvg.flow.records import Record
    from kvg.flow.settings import Settings
    from kvg.store import Store


def remote_add(store: Store, settings: Settings, name: str, url: str) -> RemoteEntry:
    """Give the address ``url`` a name. Nothing is looked at yet.

    Raises ``Conflict`` when there is a remote of this name, or refs that begin with it.
    """
    check_remote_name(name)
    check_address(url)
    if name in store.config.names(SECTION):
        raise Conflict(f"{name}: there is a remote of this name", hint=f"kvg remote set {name} URL")
    taken = [ref for ref in store.refs() if ref.startswith(f"{name}/")]
    if taken:
        raise Conflict(f"{name}: {taken[0]} is a ref of yours", hint=f"kvg mv {taken[0]} OTHER")
    full = absolute(url, settings.cwd)
    check_other(full, store.root, settings, hint=f"kvg remote add {name} URL")
    if not settings.tell_dry_run():
        store.config.set_table(SECTION, name, {"url": full})
    return RemoteEntry(name, shown(full), DEFAULT_CODEC, "added")


def remote_list(store: Store) -> Iterator[RemoteEntry]:
    """Every remote, by name."""
    for name in sorted(store.config.names(SECTION)):
        place = find_place(store, name)
        yield RemoteEntry(name, shown(place.url), place.codec, filter=place.filter)


def remote_set(
    store: Store,
    settings: Settings,
    name: str,
    *,
    url: str | None,
    codec: int | None,
    pages: bool | None = None,
    pattern: str | None = None,
) -> RemoteEntry:
    """Change the address of a remote, the codec it gets, whether a pull brings pages, or of which
    refs: of those that match ``pattern``, of all again where that is empty.

    What the place of another address has is not known until it is looked at: ``NAME/REF`` go.

    Raises ``NotFound``.
    """
    table = dict(store.config.table(SECTION, name))
    if url is None and codec is None and pages is None and pattern is None:
        raise UsageError("nothing to set", hint=f"kvg remote set {name} URL")
    if url is not None:
        check_address(url)
        table["url"] = absolute(url, settings.cwd)
        check_other(str(table["url"]), store.root, settings, hint=f"kvg remote set {name} URL")
    if codec is not None:
        if codec not in (0, 1, 2):
            raise UsageError(f"--codec {codec}: not 0, 1 or 2")
        table["codec"] = codec
    if pages is not None:
        table["pages"] = pages
    if pattern is not None:
        table["filter"] = pattern
    if not settings.tell_dry_run():
        if store.config.table(SECTION, name).get("url") != table.get("url"):
            _drop_seen(store, name)
        store.config.set_table(SECTION, name, table)
    kept, only = int(str(table.get("codec", DEFAULT_CODEC))), str(table.get("filter") or "")
    return RemoteEntry(name, shown(str(table.get("url"))), kept, "set", filter=only or None)


def _drop_seen(store: Store, name: str) -> None:
    """Forget what a remote had when it was last seen."""
    moves = [RefMove(ref, None, ANY) for ref in store.refs() if ref.startswith(f"{name}/")]
    if moves:
        store.publish(moves)
    note_left_out(store, name, (), looked_at=None)
    note_taken_off(store, name, there=None)
    store.peers.drop_seen(name)


def remote_remove(store: Store, settings: Settings, name: str) -> RemoteEntry:
    """Forget a remote and what it had; nothing there is touched.

    Raises ``NotFound``, and ``Conflict`` where pages are kept there and nowhere else, unless the
    user said yes to that.
    """
    place = find_place(store, name)
    if not place.has_pages and not settings.assume_yes:
        _check_pages_are_here(store, name)
    if not settings.tell_dry_run():
        _drop_seen(store, name)
        store.config.remove_table(SECTION, name)
    return RemoteEntry(name, shown(place.url), place.codec, "removed")


def _check_pages_are_here(store: Store, name: str) -> None:
    from kvg.flow.exchange.supplying import absent, keepers

    if keepers(store) != (name,):
        return
    lost = {page for digest in store.artifacts() for page in absent(store, store.manifest(digest))}
    if lost:
        raise Conflict(
            f"{name}: {len(lost)} pages are not here, and kept there until they are read",
            hint=f"bring them, kvg remote set {name} --pages, then kvg pull {name}; to do without "
            f"them: kvg remote remove {name} --yes",
        )


def remote_show(store: Store, settings: Settings, name: str | None) -> Iterator[Record]:
    """What is there: refs, proved where a trusted publisher names them, and the keys on offer."""
    place = find_place(store, name)
    with opened(place, settings) as remote, store.exchange.exclusive():
        remote.check()
        yield RemoteEntry(place.name, shown(place.url), place.codec, filter=place.filter)
        vouching = publishers(remote)
        for keyid, key in offers(remote).items():
            trusted = store.trust.find(keyid) is not None
            yield OfferedKey(keyid, key_line(key), trusted, keyid in vouching)
        reader = Reader(store, place, remote, keep=False, report=settings.report)
        own, names = store.own_refs(), remote.refs()
        for ref, found in zip(names, reader.refs(names), strict=True):
            here = own.get(ref)
            if isinstance(found, Finding):
                yield RemoteRefEntry(ref, None, here, found.message, found.hint, found.code)
            else:
                yield RemoteRefEntry(ref, found.digest, here, None)


def absolute(url: str, cwd: Path) -> str:
    """``url``, a path made whole: it must mean the same wherever kvg is started."""
    return url if split_scheme(url)[0] else os.path.normpath(cwd.absolute() / url)
