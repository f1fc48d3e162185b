"""What ``kvg fsck --repair`` does about the store's own log: each damaged file is moved away, and
made anew from what proves itself by the log's key and its checkpoint, here or on a remote.

What nothing at hand has is told as lost, and stays as it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from kvg import durable
from kvg.errors import Corrupt, KvgError, Unreadable, Untrusted
from kvg.log import rekey as rekeys
from kvg.log.checkpoint import (
    MAX_CHECKPOINT_SIZE,
    Checkpoint,
    open_checkpoint,
    without_witnesses,
)
from kvg.log.log import CHECKPOINT, COSIGNED, VERIFIER, Log
from kvg.log.mending import leads_to, mended_files, read_if_had
from kvg.log.tiles import FolderSource
from kvg.signing.note import encode_verifier
from kvg.store.peers import parse_verifier_line
from kvg.store.witnesses import faults, is_about_words, remembered_word
from kvg.verify.findings import Finding
from kvg.verify.fsck import Repaired
from kvg.verify.repairs import set_aside
from kvg.verify.strays import leads_out

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.log.mending import Copy, Mended
    from kvg.signing.keys import PublicKey
    from kvg.store import Store

_REFUSED = (Corrupt, Unreadable, Untrusted)
_HINT = (
    "put it back from a copy of the store; where there is none, kvg clone takes what was pushed, "
    "and what was not is to be deposited again in a new store: the objects here are not touched"
)

_AGAIN = "ask the witness for its word again: kvg log --cosigned FILE takes it up"


def repair_log(
    store: Store, copies: Callable[[str], Sequence[Copy]]
) -> Iterator[Repaired | Finding]:
    """Yield what was made anew, and what is lost. ``copies`` gives those of the log of an origin.

    Does nothing where the key of the log is not known for certain. Raises ``Conflict``.
    """
    origin = store.origin
    try:
        key = store.pinned_key()
    except _REFUSED:
        return  # which the check of the log tells
    if origin is None:
        return
    with store.lock.exclusive():
        mending = _Mending(store, origin, key, copies)
        yield from mending.verifier()
        yield from mending.checkpoint()
        yield from mending.files()
        yield from mending.key_changes()
        yield from mending.words()
    store.close()  # what is known of the log is read again


class _Mending:
    """One log's files, each put right in the order in which the next rests on it."""

    def __init__(
        self, store: Store, origin: str, key: PublicKey, copies: Callable[[str], Sequence[Copy]]
    ) -> None:
        self._store = store
        self._folder = store.root / "log"
        self._source = FolderSource(self._folder)
        self._origin = origin
        self._key = key
        self._given = copies
        self._copies_there: Sequence[Copy] | None = None

    def _copies(self) -> Sequence[Copy]:
        if self._copies_there is None:
            self._copies_there = self._given(self._origin)
        return self._copies_there

    def verifier(self) -> Iterator[Repaired]:
        """The line of the log's key: what the store and the user pinned is the truth."""
        line = f"{encode_verifier(self._origin, self._key)}\n".encode()
        found = self._read(VERIFIER)
        if found == line or self._opens() is not None:
            return
        with suppress(*_REFUSED):
            parse_verifier_line(found or b"", origin=self._origin)
            if self._signed(self._read(CHECKPOINT)) is None:
                return  # a whole line of another key, under which the log may have gone on
        yield from self._put(VERIFIER, line)

    def checkpoint(self) -> Iterator[Repaired | Finding]:
        """The newest that the log's key signed, and that the entries at hand lead to."""
        found = self._signed(self._read(CHECKPOINT))
        known = [*self._known_checkpoints(by_others=found is None)]
        for said, note in sorted(known, key=lambda item: item[0].size, reverse=True):
            if found is not None and said.size <= found.size:
                return
            if leads_to(self._source, said.size, said.root, self._copies):
                yield from self._put(CHECKPOINT, note)
                return
        if found is None:
            text = "nothing at hand that the log's key signed leads to the entries here"
            yield _lost(CHECKPOINT, text)

    def _known_checkpoints(self, *, by_others: bool) -> Iterator[tuple[Checkpoint, bytes]]:
        notes = [self._read(COSIGNED)]
        if self._store.keyring is not None:
            notes.append(self._store.keyring.seen_checkpoint(self._origin))
        for copy in self._copies() if by_others else ():
            notes.append(read_if_had(copy.source, CHECKPOINT, MAX_CHECKPOINT_SIZE))
        for note in notes:
            said = self._signed(note)
            if note is not None and said is not None:
                yield said, note

    def files(self) -> Iterator[Repaired | Finding]:
        """The tiles and entries under the checkpoint."""
        said = self._signed(self._read(CHECKPOINT))
        if said is None:
            return
        if not leads_to(self._source, said.size, said.root, self._copies):
            yield _lost("tile", f"nothing at hand leads to its checkpoint of size {said.size}")
            return
        for item in mended_files(self._source, said.size, said.root, self._copies):
            if item.data is None:
                yield _lost(item.name, _told(item))
            else:
                yield from self._put(item.name, item.data, mode=0o444)

    def key_changes(self) -> Iterator[Repaired | Finding]:
        """The record of the changes of key; the first key's line is on no remote."""
        log = self._opens()
        if log is None:
            return
        try:
            sizes, known = rekeys.sizes_of(log), None
        except _REFUSED:
            return  # entries are lost, which was told
        try:
            known = rekeys.first_key(log)
        except Corrupt:
            yield self._moved(self._folder / rekeys.FIRST)
            text = f"what it signed, up to size {sizes[0] if sizes else log.size}, is not judged"
            yield _lost(rekeys.FIRST, text, hint="put it back from a copy of the store")
        for size in sizes:
            name, new = rekeys.file_name(size), None
            for place, note in enumerate(self._notes_of(name, size)):
                with suppress(*_REFUSED):
                    new = rekeys.check_step(log, size, note, known)
                    yield from self._put(name, note) if place and note is not None else ()
                    break
            if new is None:
                yield _lost(name, "no remote has it")
            known = new

    def words(self) -> Iterator[Repaired | Finding]:
        """What witnesses cosigned, as the user saw it: a damaged one is else lost."""
        log = self._opens()
        if log is None or any(True for _ in log.faults()):
            return  # words are judged by the log
        self._store.close()
        try:
            about = dict.fromkeys(name for name, _ in faults(self._store) if is_about_words(name))
        except _REFUSED:
            return  # which the check of the log tells
        for name in about:
            file = name.removeprefix("log/")
            seen = remembered_word(self._store, file)
            if seen is not None:
                yield from self._put(file, seen)
            elif os.path.lexists(path := self._folder / file) and not leads_out(self._store, path):
                yield self._moved(path)
                yield _lost(file, "nobody here remembers it", hint=_AGAIN)

    def _notes_of(self, name: str, size: int) -> Iterator[bytes | None]:
        """What is there, then what else both keys may have signed."""
        yield self._read(name)
        yield from (self._by_log(self._read(other)) for other in (CHECKPOINT, COSIGNED))
        for copy in self._copies():
            yield read_if_had(copy.source, name, MAX_CHECKPOINT_SIZE)

    def _by_log(self, note: bytes | None) -> bytes | None:
        with suppress(Corrupt):
            return without_witnesses(note or b"", self._origin, what=self._origin)
        return None

    def _read(self, name: str) -> bytes | None:
        return read_if_had(self._source, name, MAX_CHECKPOINT_SIZE)

    def _signed(self, note: bytes | None) -> Checkpoint | None:
        try:
            return open_checkpoint(
                note or b"", origin=self._origin, verifier=self._key, what=CHECKPOINT
            )
        except (Corrupt, Untrusted):
            return None

    def _opens(self) -> Log | None:
        try:
            return Log.open(self._folder, verifier=self._key, staging=self._store.staging)
        except KvgError:
            return None

    def _put(self, name: str, data: bytes, *, mode: int = 0o644) -> Iterator[Repaired]:
        path = self._folder / name
        for folder in (*reversed(path.relative_to(self._folder).parents), None):
            at = path if folder is None else self._folder / folder
            if os.path.lexists(at) and (at == path or at.is_symlink() or not at.is_dir()):
                yield self._moved(at)
        durable.replace(path, [data], staging=self._store.staging, mode=mode)
        yield Repaired(f"log/{name}", "made anew")

    def _moved(self, path: Path) -> Repaired:
        name = str(path.relative_to(self._store.root))
        return Repaired(name, "moved", set_aside(self._store, path, name=name.replace("/", "-")))


def _told(item: Mended) -> str:
    if item.last < item.first:
        return "neither the entries here nor a remote tell what it was"
    some = (
        f"entry {item.first}" if item.first == item.last else f"entries {item.first} to {item.last}"
    )
    return f"{some}: neither here nor on a remote"


def _lost(name: str, text: str, *, hint: str = _HINT) -> Finding:
    name = f"log/{name}"
    return Finding(Corrupt.code, Corrupt.kind, name, f"{name}: lost: {text}", hint)
