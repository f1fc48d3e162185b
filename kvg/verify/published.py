"""What others pushed to a store that is a remote: their logs, pointers, keys, and the listing.

A push is taken step by step, so that a killed one may leave a log without a checkpoint and a
pointer that is not the newest: neither is a fault here. What a pointer leads to is there before it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kvg import durable
from kvg.digest import Digest
from kvg.errors import Corrupt, Incompatible, KvgError, NotFound, Unreadable, Untrusted
from kvg.remote import layout
from kvg.verify.findings import Finding

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.log.log import Log
    from kvg.store import Store

_REFUSED = (Corrupt, Incompatible, NotFound, Untrusted)
_LOOKED_AT = (layout.LOGS, layout.REFS, layout.KEYS)
_HINT = "kvg fsck --repair, then kvg push --verify by whoever pushed it"


class Published:
    """See the module. ``named`` holds what good pointers stand for, once ``findings`` has ended."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._root = store.root
        self._logs: dict[str, Log] = {}
        self.named: dict[str, Digest] = {}

    @property
    def is_there(self) -> bool:
        """Whether anybody ever pushed here."""
        return any(os.path.lexists(self._root / name) for name in _LOOKED_AT)

    def findings(self) -> Iterator[Finding]:
        """Every fault, each about a file or folder by its name in the store's own."""
        if not self.is_there:
            return
        for folder in _LOOKED_AT:
            if (self._root / folder).is_symlink():
                continue  # which the look at the root tells
            for path in self._entries(folder):
                yield from self._finding(str(path.relative_to(self._root)), folder, path)
        listing = self._root / layout.LISTING_FILE
        if listing.exists():
            yield from self._finding(layout.LISTING_FILE, layout.LISTING_FILE, listing)

    def _entries(self, folder: str) -> Iterator[Path]:
        """The logs, and the files under the other folders; a link is followed nowhere."""
        top = self._root / folder
        if not top.is_dir():
            yield from [top] if os.path.lexists(top) else ()
            return
        if folder == layout.LOGS:
            yield from sorted(top.iterdir())
            return
        for parent, folders, names in durable.walk(top):
            here = top / os.path.relpath(parent, top)
            links = [name for name in folders if (here / name).is_symlink()]
            yield from (here / name for name in sorted([*names, *links]))

    def _finding(self, name: str, folder: str, path: Path) -> Iterator[Finding]:
        checks: dict[str, Callable[[str, Path], None]] = {
            layout.LOGS: self._check_log,
            layout.REFS: self._check_ref,
            layout.KEYS: self._check_key,
            layout.LISTING_FILE: self._check_listing,
        }
        try:
            if path.is_symlink():
                raise Corrupt(f"{name}: a link")
            checks[folder](name, path)
        except _REFUSED as error:
            yield Finding(error.code, error.kind, name, error.message, _HINT)
        except KvgError as error:
            if type(error) not in (KvgError, Unreadable):
                raise
            yield Finding(error.code, error.kind, name, error.message, error.hint)

    def _check_log(self, name: str, path: Path) -> None:
        from kvg.log.log import Log
        from kvg.signing.note import parse_note

        if not layout.is_origin(path.name) or not path.is_dir():
            raise Corrupt(f"{name}: no log")
        if not (path / layout.CHECKPOINT).exists():
            return  # a first push that was cut
        log = Log.open(path, staging=self._store.staging)
        if log.origin != path.name:
            raise Untrusted(f"{name}: is the log {log.origin}")
        for fault in log.faults():
            raise fault
        if not (path / layout.PUBLISHER).exists():
            raise Corrupt(f"{name}: nobody vouches for it: {layout.PUBLISHER} is missing")
        parse_note(_read(path / layout.PUBLISHER), what=f"{name}/{layout.PUBLISHER}")
        self._logs[log.origin] = log

    def _check_ref(self, name: str, path: Path) -> None:
        from kvg.log.entry import RefEntry, parse_entry
        from kvg.store.names import is_ref_name

        ref = name.removeprefix(f"{layout.REFS}/")
        if not is_ref_name(ref):
            raise Corrupt(f"{name}: no ref")
        pointer = layout.parse_pointer(_read(path), what=name)
        log = self._logs.get(pointer.origin)
        if log is None:
            raise Corrupt(f"{name}: of the log {pointer.origin}, which is not sound here")
        if pointer.index >= log.size:
            raise Corrupt(f"{name}: entry {pointer.index} of a log of {log.size}")
        raw = next(iter(log.read(pointer.index, pointer.index + 1)))
        entry = parse_entry(raw, what=f"{name}: entry {pointer.index}")
        if not isinstance(entry, RefEntry) or entry.name != ref or entry.digest is None:
            raise Corrupt(f"{name}: entry {pointer.index} of {pointer.origin} is no value of it")
        self.named[ref] = entry.digest

    def _check_key(self, name: str, path: Path) -> None:
        from kvg.signing.keys import parse_public

        public = parse_public(_read(path).decode("ascii", "replace"), what=name)
        if path.name != f"{public.keyid}.pub":
            raise Corrupt(f"{name}: is the key {public.keyid[:12]}")

    def _check_listing(self, name: str, path: Path) -> None:
        layout.parse_listing(_read(path, layout.MAX_LISTING_BYTES), what=name)


def _read(path: Path, limit: int = layout.MAX_SMALL_BYTES) -> bytes:
    with durable.translated(path), open(path, "rb", opener=durable.plain) as file:
        return file.read(limit + 1)
