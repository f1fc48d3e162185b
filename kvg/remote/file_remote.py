"""A remote made of plain files: what directories, web servers and object stores have in common."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kvg.digest import PREFIX, is_digest
from kvg.errors import Conflict, Corrupt, NotFound
from kvg.log.tiles import WIDTH
from kvg.remote import layout

if TYPE_CHECKING:
    from kvg.digest import Buffer, Digest
    from kvg.remote.files import Files
    from kvg.remote.layout import Expected, Listing, Pointer, StoreLog

SWAP_ATTEMPTS = 16


class FileRemote:
    """See ``Remote``. ``files`` is the place."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._guard = threading.Lock()
        self._marks: list[bytes] = []
        """The marks of the push under way: what was written last, after what may have been."""
        self._gc_marks: list[bytes] = []
        """As ``_marks``, of the removal under way."""

    @property
    def url(self) -> str:
        return self._files.url

    @property
    def is_writable(self) -> bool:
        return self._files.is_writable

    @property
    def puts_in_turn(self) -> bool:
        return self._files.writes_in_turn

    @property
    def keeps_folders(self) -> bool:
        return self._files.keeps_folders

    def check_ref(self, name: str) -> None:
        self._ref(name)

    def check(self) -> None:
        found = self._files.read(layout.FORMAT_FILE, layout.MAX_SMALL_BYTES)
        if found is None:
            raise NotFound(f"{self.url}: no remote there", hint="kvg push makes one")
        layout.check_format(found, what=self.url)

    def store_log(self) -> StoreLog | None:
        if self._files.read(layout.FORMAT_FILE, layout.MAX_SMALL_BYTES) != layout.STORE_FORMAT:
            return None
        try:
            note = self._files.read(layout.STORE_CHECKPOINT, layout.MAX_SMALL_BYTES)
        except Corrupt:  # a far side that gives nothing but a remote's files
            return None
        return None if note is None else layout.parse_store_log(note)

    def make(self) -> None:
        if self._files.read(layout.FORMAT_FILE, layout.MAX_SMALL_BYTES) is None:
            try:
                self._files.swap(layout.FORMAT_FILE, layout.FORMAT, expect=None)
            except Conflict:
                pass  # another made it meanwhile
        self.check()

    def missing(self, digests: Sequence[Digest]) -> frozenset[Digest]:
        return self._files.missing(tuple(dict.fromkeys(digests)))

    def get(self, digest: Digest, *, start: int = 0, limit: int) -> Iterator[bytes]:
        return self._files.stream(layout.object_name(digest), start=start, limit=limit)

    def put(self, digest: Digest, parts: Iterable[Buffer]) -> None:
        self._files.write(layout.object_name(digest), parts)

    def origins(self) -> tuple[str, ...]:
        names = self._files.names(layout.LOGS)
        if names is None:
            return self._listing().origins
        return tuple(sorted({name.partition("/")[0] for name in names if "/" in name}))

    def log(self, origin: str) -> FileLog:
        if not layout.is_origin(origin):
            raise Corrupt(f"{self.url}: {origin[:80]!r} is no log")
        return FileLog(self._files, f"{layout.LOGS}/{origin}", self.url)

    def refs(self) -> tuple[str, ...]:
        names = self._files.names(layout.REFS)
        return self._listing(is_needed=True).refs if names is None else tuple(names)

    def pointer(self, name: str) -> Pointer | None:
        found = self._parsed(
            self._ref(name), self._files.read(self._ref(name), layout.MAX_POINTER_BYTES)
        )
        if isinstance(found, Corrupt):
            raise found
        return found

    def pointers(self, names: Sequence[str]) -> Mapping[str, Pointer | Corrupt | None]:
        refs = {self._ref(name): name for name in names}
        try:
            found = self._files.read_all(tuple(refs), layout.MAX_POINTER_BYTES)
        except Corrupt:  # one of them can't be read at all: each by itself
            return {name: self._own_failure(name) for name in names}
        return {name: self._parsed(ref, found.get(ref)) for ref, name in refs.items()}

    def _own_failure(self, name: str) -> Pointer | Corrupt | None:
        try:
            return self.pointer(name)
        except Corrupt as error:
            return error

    def _parsed(self, ref: str, data: bytes | None) -> Pointer | Corrupt | None:
        try:
            return None if data is None else layout.parse_pointer(data, what=f"{self.url}: {ref}")
        except Corrupt as error:
            return layout.MalformedPointer(error.message, data or b"", hint=error.hint)

    def move(
        self,
        name: str,
        pointer: Pointer | None,
        *,
        expect: Expected,
        value: Digest | None = None,
    ) -> None:
        try:
            self._files.swap(
                self._ref(name),
                None if pointer is None else layout.encode_pointer(pointer),
                expect=self._expected(name, expect),
            )
        except layout.InTheWay:
            raise
        except Conflict:
            raise Conflict(
                f"{name}: moved on {self.url} meanwhile", hint="kvg pull, then push again"
            ) from None

    def _expected(self, name: str, expect: Expected) -> bytes | None:
        """The bytes that ``expect`` has; of what is larger than any pointer the first were seen."""
        if not isinstance(expect, layout.MalformedPointer):
            return None if expect is None else layout.encode_pointer(expect)
        if len(expect.data) <= layout.MAX_POINTER_BYTES:
            return expect.data
        there = self._files.read(self._ref(name), layout.MAX_LISTING_BYTES)
        return there if there is not None and there.startswith(expect.data) else expect.data

    def _ref(self, name: str) -> str:
        full = f"{layout.REFS}/{name}"
        layout.check_name(full, what=self.url)
        return full

    def offers(self) -> Mapping[str, str]:
        names = self._files.names(layout.KEYS)
        named = self._listing().keys if names is None else names
        keys = [name for name in named if name.endswith(".pub") and "/" not in name]
        layout.check_keys(len(keys), what=self.url)
        found: dict[str, str] = {}
        for name in keys:
            try:
                data = self._files.read(f"{layout.KEYS}/{name}", layout.MAX_KEY_BYTES)
            except Corrupt:
                continue  # nothing that is on offer
            if data is not None and len(data) <= layout.MAX_KEY_BYTES and data.isascii():
                found[name.removesuffix(".pub")] = data.decode("ascii")
        return found

    def offer(self, keyid: str, text: str) -> None:
        name = f"{layout.KEYS}/{keyid}.pub"
        layout.check_name(name, what=self.url)
        data = text.encode("ascii")
        if self._files.read(name, layout.MAX_SMALL_BYTES) != data:
            self._files.write(name, [data])

    def announce(self, origin: str) -> None:
        with self._guard:
            self._marks = [_new_mark(origin)]
            self._files.write(self._pushing(origin), self._marks)
        holder = self.collector()
        if holder is not None:
            self.withdraw(origin)
            raise Conflict(
                f"{self.url}: {_shown(holder)} removes there what nothing needs",
                hint="push again once it has ended; kvg remote gc here ends one that was killed",
            )

    def renew(self, origin: str) -> None:
        with self._guard:
            if self._marks and not self._renewed(self._pushing(origin), origin, self._marks):
                raise Conflict(
                    f"{self.url}: this push was taken for dead, and what it needs may be removed",
                    hint="kvg push --verify",
                )

    def _renewed(self, name: str, origin: str, marks: list[bytes]) -> bool:
        """Replace the mark in ``name``, one of ``marks``, by a new one; whether it was there."""
        there = self._files.read(name, layout.MAX_NAME_BYTES)
        new = _new_mark(origin)
        if there not in marks:
            return False
        marks.append(new)
        try:
            self._files.swap(name, new, expect=there)
        except Conflict:
            return False
        marks[:] = [new]
        return True

    def withdraw(self, origin: str) -> None:
        with self._guard:
            self._marks = []
            self._files.remove(self._pushing(origin))

    def is_cut(self, origin: str) -> bool:
        """Whether a push or a removal of refs by ``origin`` began there and did not end."""
        return self._files.read(self._pushing(origin), layout.MAX_NAME_BYTES) is not None

    def pushes(self, *, besides: str) -> Mapping[str, bytes]:
        """Who pushes there by its own word, ``besides`` left out, each with its mark as it is now.

        A mark that stays the same for long is of a push that was killed: see ``renew``.
        """
        names = [name for name in self._files.names(layout.PUSHING) or () if name != besides]
        found = self._files.read_all([self._pushing(name) for name in names], layout.MAX_NAME_BYTES)
        marks = {name: found.get(self._pushing(name)) for name in names}
        return {name: mark for name, mark in marks.items() if mark is not None}

    def end_push(self, origin: str, mark: bytes) -> None:
        """Take the mark of a push that was killed away. Raises ``Conflict`` where it changed."""
        self._files.swap(self._pushing(origin), None, expect=mark)

    def _pushing(self, origin: str) -> str:
        name = f"{layout.PUSHING}/{origin}"
        layout.check_name(name, what=self.url)
        return name

    def begin_gc(self, owner: str) -> None:
        """Mark that ``owner`` removes what nothing needs; one of its own that was killed is ended.

        Raises ``Conflict`` while one pushes, or another removes.
        """
        there = self.collector()
        mark = _new_mark(owner)
        try:
            if there is not None and _owner_of(there) != owner:
                raise Conflict(layout.GC_FILE)
            self._files.swap(layout.GC_FILE, mark, expect=there)
        except Conflict:
            raise Conflict(
                f"{self.url}: {_shown(there or b'')} removes there what nothing needs already",
                hint="try again once it has ended",
            ) from None
        with self._guard:
            self._gc_marks = [mark]
        pushing = [name for name in self._files.names(layout.PUSHING) or () if name != owner]
        if pushing:
            self.end_gc()
            raise Conflict(
                f"{self.url}: {pushing[0][:80]} pushes there",
                hint="try again later",
            )

    def renew_gc(self, owner: str) -> None:
        """Show that the removal is alive. Raises ``Conflict`` where it was taken for dead."""
        with self._guard:
            if self._gc_marks and not self._renewed(layout.GC_FILE, owner, self._gc_marks):
                raise Conflict(
                    f"{self.url}: this removal was taken for dead, and ended",
                    hint="kvg remote gc",
                )

    def end_gc(self) -> None:
        """Take the mark away, if it is this removal's; again is harmless."""
        with self._guard:
            there = self.collector() if self._gc_marks else None
            if there in self._gc_marks:
                try:
                    self._files.swap(layout.GC_FILE, None, expect=there)
                except Conflict:
                    pass  # it was taken for dead just now
            self._gc_marks = []

    def collector(self) -> bytes | None:
        """The mark of who removes there what nothing needs, by its own word; None without one.

        One that stays the same for long is of a removal that was killed: see ``renew_gc``.
        """
        return self._files.read(layout.GC_FILE, layout.MAX_NAME_BYTES)

    def owner_of(self, mark: bytes) -> str:
        """Whose mark of a removal it is."""
        return _owner_of(mark)

    def end_killed_gc(self, mark: bytes) -> None:
        """Take the mark of a removal that was killed away. Raises ``Conflict`` if it changed."""
        self._files.swap(layout.GC_FILE, None, expect=mark)

    def objects(self) -> Iterator[Digest]:
        """Every object that is there."""
        for name in self._files.names(layout.OBJECTS) or ():
            text = PREFIX + name.replace("/", "", 1)
            if is_digest(text) and layout.object_name(text) == f"{layout.OBJECTS}/{name}":
                yield text

    def object_size(self, digest: Digest) -> int:
        """How many bytes an object has there; 0 where it is not."""
        head = self._files.head(layout.object_name(digest), 1)
        return 0 if head is None else head.size

    def remove_abandoned(self, *, dry_run: bool) -> tuple[int, int]:
        """Remove what pushes that were killed had half written; how many files, and their bytes."""
        return self._files.remove_abandoned(dry_run=dry_run)

    def remove_object(self, digest: Digest) -> int:
        """Remove an object for good; returns how many bytes it had."""
        return self._files.remove(layout.object_name(digest))

    def publish_listing(self) -> None:
        for _ in range(SWAP_ATTEMPTS):
            old = self._files.read(layout.LISTING_FILE, layout.MAX_LISTING_BYTES)
            keys = self._files.names(layout.KEYS) or ()
            found = layout.Listing(self.origins(), self.refs(), tuple(keys))
            new = layout.encode_listing(found)
            if new == old:
                return
            try:
                self._files.swap(layout.LISTING_FILE, new, expect=old)
                return
            except Conflict:
                continue
        raise Conflict(f"{self.url}: {layout.LISTING_FILE} keeps moving", hint="push again")

    def close(self) -> None:
        self._files.close()

    def _listing(self, *, is_needed: bool = False) -> Listing:
        data = self._files.read(layout.LISTING_FILE, layout.MAX_LISTING_BYTES)
        if data is None and not is_needed:
            return layout.Listing()
        if data is None:
            raise NotFound(
                f"{self.url}: no {layout.LISTING_FILE}: nobody can tell what is there",
                hint="its owner copies the whole folder there, or pushes once more",
            )
        return layout.parse_listing(data, what=f"{self.url}: {layout.LISTING_FILE}")


def _new_mark(origin: str) -> bytes:
    return f"{origin} {os.urandom(8).hex()}".encode("ascii")


def _owner_of(mark: bytes) -> str:
    """Whose mark it is; the number after the name makes each another."""
    return mark.partition(b" ")[0].decode("ascii", "replace")


def _shown(mark: bytes) -> str:
    return f"the store of log {_owner_of(mark)[:80]}"


class FileLog:
    """See ``LogFiles``."""

    def __init__(self, files: Files, folder: str, url: str) -> None:
        self._files = files
        self._folder = folder
        self._url = url

    def read(self, name: str, limit: int) -> bytes | None:
        return self._files.read(self._name(name), limit)

    def widths(self, name: str) -> Sequence[int]:
        found = self._files.names(self._name(f"{name}.p")) or ()
        return sorted(int(text) for text in found if _is_width(text))

    def write(self, name: str, data: bytes) -> None:
        self._files.write(self._name(name), [data])

    def swap(self, name: str, data: bytes, *, expect: bytes | None) -> None:
        self._files.swap(self._name(name), data, expect=expect)

    def _name(self, name: str) -> str:
        full = f"{self._folder}/{name}"
        layout.check_name(full, what=self._url)
        return full

    def __repr__(self) -> str:
        return f"{self._url}/{self._folder}"


def _is_width(text: str) -> bool:
    return text.isascii() and text.isdigit() and text[0] != "0" and int(text) < WIDTH
