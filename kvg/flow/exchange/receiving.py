"""Receiving artifacts: into quarantine, checked whole, and only then made part of the store.

Order for one artifact: manifest and attestations; their signatures judged; token ids, pages and
what the attestations name; then everything moves into ``objects/``, the manifest last. The log
entries that make it visible are written by the caller. What is finished stays in quarantine when
the rest fails, so that the next try moves only what is missing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Container, Iterator, Sequence
from typing import TYPE_CHECKING

from kvg import codec as kvz
from kvg import durable
from kvg.digest import Digest, blake3_bytes, blake3_hex, hex_of, short
from kvg.errors import Corrupt, KvgError, NotFound, RemoteFailed
from kvg.flow.exchange.elsewhere import GIVES_NOTHING
from kvg.flow.exchange.parallel import in_order
from kvg.flow.exchange.planes import joiner
from kvg.frozen import frozen
from kvg.objects.manifest import check_sizes, parse_manifest
from kvg.objects.page import DTYPE_SIZES, check_page, data_start
from kvg.objects.tokens import decode_ids
from kvg.store.closure import digests_named
from kvg.store.objects import HEADER_SLACK_BYTES, LIMIT_BYTES
from kvg.verify.received import judge_received

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.flow.exchange.elsewhere import Elsewhere
    from kvg.flow.settings import Settings
    from kvg.objects.manifest import Manifest, Page
    from kvg.remote import Remote
    from kvg.report import Task
    from kvg.store import Pending, Store
    from kvg.store.objects import ObjectFolder
    from kvg.verify.judgement import Judgement

MANIFEST_LIMIT_BYTES = 64 << 20
ENVELOPE_LIMIT_BYTES = 16 << 20
SAVED_FROM_BYTES = kvz.FRAME_SIZE
"""A body at least this long is written as it comes, so that it can be gone on with after a kill."""


@frozen
class Wanted:
    """One object: what to call it, its raw size where something signed states it, its form."""

    digest: Digest
    what: str
    size: int | None = None
    limit: int = LIMIT_BYTES
    data_start: int = 0
    element: int = 1
    is_page: bool = False


@frozen
class Had:
    """The raw bytes of an object, checked, with their BLAKE3 where checking took it."""

    raw: memoryview
    blake3: str | None = None


@frozen
class Received:
    """One artifact in quarantine or here, whole and judged; ``objects`` in the order to keep."""

    digest: Digest
    judgement: Judgement
    objects: tuple[Digest, ...]


class Counts:
    """What has moved. ``bytes`` are of stored forms, as they travelled."""

    def __init__(self) -> None:
        self.moved: set[Digest] = set()
        self.skipped: set[Digest] = set()
        self.bytes = 0
        self.resumed = 0
        self._guard = threading.Lock()

    def add_moved(self, digest: Digest, n_bytes: int) -> None:
        """``digest`` was received; ``n_bytes`` of it moved now."""
        with self._guard:
            self.moved.add(digest)
            self.bytes += n_bytes

    def add_skipped(self, digest: Digest, *, resumed: bool) -> None:
        """``digest`` was here, or in quarantine (``resumed``); told once."""
        with self._guard:
            if digest not in self.moved and digest not in self.skipped:
                self.skipped.add(digest)
                self.resumed += 1 if resumed else 0

    def add_resumed(self) -> None:
        """An object is gone on with where it was cut."""
        with self._guard:
            self.resumed += 1


class MissingObjects(Corrupt):
    """Some objects of an artifact are not on the remote, or damaged; the others are kept."""

    def __init__(self, what: str, missing: Sequence[KvgError]) -> None:
        first = missing[0]
        super().__init__(f"{what}: {len(missing)} objects not had: {first.message}")
        self.missing = tuple(missing)

    def as_corrupt(self) -> tuple[Corrupt, ...]:
        """What is missing or damaged, each as a failure of its own."""
        hint = "the others are kept; once it is there, run it again"
        return tuple(
            error if isinstance(error, Corrupt) else Corrupt(f"missing: {error.message}", hint=hint)
            for error in self.missing
        )


class Receiver:
    """Receives from one remote, while ``store.exchange`` is held and ``pending`` is open."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        remote: Remote,
        pending: Pending,
        task: Task,
        *,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        """``elsewhere``: who is asked for what ``remote`` lacks or has damaged."""
        self._elsewhere = elsewhere
        self._store = store
        self._settings = settings
        self._remote = remote
        self._pending = pending
        self._task = task
        self._quarantine: ObjectFolder = store.quarantine
        self._join: kvz.Join | None = None
        self.counts = Counts()

    def receive(
        self,
        digest: Digest,
        attestations: Sequence[tuple[str, int, Digest]],
        *,
        what: str,
        require: Callable[[Judgement], None],
        pages: bool = True,
    ) -> Received:
        """Bring the artifact ``digest`` into quarantine, whole and judged.

        ``attestations`` are (log, position, envelope). ``require`` raises unless the judgement is
        enough; it is asked before anything large moves. Raises ``Corrupt`` (``MissingObjects``
        after everything else was had), ``Untrusted``.
        """
        raw = self._first(Wanted(digest, what, limit=MANIFEST_LIMIT_BYTES), what)
        manifest = parse_manifest(bytes(raw), what=what)
        check_sizes(manifest, what=what)
        envelopes = [
            (origin, index, name, bytes(self._first(self._envelope(name, what), what)))
            for origin, index, name in attestations
        ]
        judgement = judge_received(self._store.trust, digest, envelopes, what=what)
        require(judgement)
        named = tuple(dict.fromkeys(d for *_, data in envelopes for d in digests_named(data)))
        resources = self._offered(named)
        self._need_all(manifest, resources, what, pages=pages)
        kept = [page.digest for page in manifest.pages if pages]
        order = (*kept, manifest.tokens.digest, *resources, *(d for _, _, d, _ in envelopes))
        return Received(digest, judgement, (*dict.fromkeys(order), digest))

    def receive_pages(self, manifest: Manifest, digests: Container[Digest], *, what: str) -> None:
        """Bring those pages of ``manifest`` that are in ``digests`` into the store, each checked.

        Raises ``MissingObjects`` after the others were had.
        """
        wanted = [item for item in self._pages(manifest, what) if item[0].digest in digests]
        self._need_each(manifest, wanted, what)
        self._adopt([item.digest for item, _ in wanted])

    def adopt(self, received: Received) -> None:
        """Make the artifact's objects part of the store, each checked before; the manifest last."""
        self._adopt(received.objects[:-1])
        self._adopt(received.objects[-1:])

    def _adopt(self, digests: Sequence[Digest]) -> None:
        there = [digest for digest in digests if self._quarantine.has(digest)]
        if there:
            self._store.objects.adopt(self._quarantine, there)

    def _need_all(
        self, manifest: Manifest, resources: Sequence[Digest], what: str, *, pages: bool
    ) -> None:
        items: list[tuple[Wanted, Page | None]] = [
            *self._tokens(manifest, what),
            *self._resources(resources, what),
            *(self._pages(manifest, what) if pages else ()),
        ]
        self._need_each(manifest, items, what)

    def _need_each(
        self, manifest: Manifest, items: Sequence[tuple[Wanted, Page | None]], what: str
    ) -> None:
        missing: list[KvgError] = []
        self._join = joiner(sum(wanted.size or 0 for wanted, _ in items))

        def need(wanted: tuple[Wanted, Page | None]) -> KvgError | None:
            try:
                self._check(self._need(wanted[0]), manifest, wanted, what)
            except (Corrupt, NotFound) as error:
                return error
            return None

        for error in in_order(need, items, jobs=self._settings.jobs):
            missing += [error] if error is not None else []
        if missing:
            raise MissingObjects(what, missing)

    def _tokens(self, manifest: Manifest, what: str) -> Iterator[tuple[Wanted, None]]:
        name = f"{what}: token ids"
        yield Wanted(manifest.tokens.digest, name, size=4 * manifest.count, element=4), None

    def _pages(self, manifest: Manifest, what: str) -> Iterator[tuple[Wanted, Page]]:
        for page in {page.digest: page for page in manifest.pages}.values():
            group = manifest.group(page.group)
            yield (
                Wanted(
                    page.digest,
                    f"{what}: page {page.group} [{page.start}, {page.end})",
                    size=page.size,
                    data_start=data_start(group, page.n_tokens),
                    element=DTYPE_SIZES[group.dtype],
                    is_page=True,
                ),
                page,
            )

    def _resources(self, digests: Sequence[Digest], what: str) -> Iterator[tuple[Wanted, None]]:
        for digest in digests:
            yield Wanted(digest, f"{what}: {short(digest)}"), None

    def _envelope(self, digest: Digest, what: str) -> Wanted:
        return Wanted(digest, f"{what}: attestation {short(digest)}", limit=ENVELOPE_LIMIT_BYTES)

    def _offered(self, digests: Sequence[Digest]) -> tuple[Digest, ...]:
        """Those of what statements name that can be had: here, or there."""
        here = {d for d in digests if self._store.objects.has(d) or self._quarantine.has(d)}
        absent = self._remote.missing([d for d in digests if d not in here])
        return tuple(d for d in digests if d not in absent)

    def _check(
        self,
        had: Had,
        manifest: Manifest,
        wanted: tuple[Wanted, Page | None],
        what: str,
    ) -> None:
        item, page = wanted
        raw = had.raw
        if page is not None:
            if (had.blake3 or blake3_hex(raw)) != page.blake3:
                raise Corrupt(f"{item.what}: bytes do not match the BLAKE3 of the manifest")
            check_page(raw, manifest.group(page.group), page.n_tokens, what=item.what)
        elif item.digest == manifest.tokens.digest:
            decode_ids(raw, what=item.what, count=manifest.count)

    def _need(self, wanted: Wanted) -> Had:
        """The raw bytes of an object: from here, from quarantine, or received and put there."""
        self._pending.add(wanted.digest)
        for folder in (self._store.objects, self._quarantine):
            if folder.has(wanted.digest):
                try:
                    raw = folder.read(
                        wanted.digest, size=wanted.size, what=wanted.what, limit=wanted.limit
                    )
                except Corrupt:
                    continue  # what is there is damaged: it is received anew
                self.counts.add_skipped(wanted.digest, resumed=folder is self._quarantine)
                return Had(raw)
        try:
            return self._receive(wanted, self._remote)
        except (Corrupt, NotFound):
            found = self._from_others(wanted)
            if found is None:
                raise
            return found

    def _from_others(self, wanted: Wanted) -> Had | None:
        """As ``_receive``, from another remote of the store; None where none has it whole."""
        if self._elsewhere is None:
            return None
        for name, remote in self._elsewhere.remotes():
            try:
                had = self._receive(wanted, remote)
            except RemoteFailed:
                self._elsewhere.drop(name)
            except GIVES_NOTHING:
                continue
            else:
                self._elsewhere.note(name)
                return had
        return None

    def _first(self, wanted: Wanted, what: str) -> memoryview:
        """As ``_need``, for what everything else depends on."""
        try:
            return self._need(wanted).raw
        except NotFound as error:
            raise MissingObjects(what, [error]) from None

    def _receive(self, wanted: Wanted, remote: Remote) -> Had:
        stored, n_new = self._download(wanted, remote)
        part = self._part(wanted.digest)
        try:
            raw = kvz.decode(
                stored,
                digest=wanted.digest,
                size=wanted.size,
                what=f"{wanted.what}: object {short(wanted.digest)}",
                limit=wanted.limit if wanted.size is None else max(wanted.size, 1),
                join=self._join,
            )
        except Corrupt:
            _remove_if_there(part)
            raise
        blake3 = _whole_blake3(stored) or (blake3_hex(raw) if wanted.is_page else None)
        self._quarantine.put_received(
            raw,
            stored,
            digest=wanted.digest,
            data_start=wanted.data_start,
            element=wanted.element,
            blake3=None if blake3 is None else bytes.fromhex(blake3),
        )
        _remove_if_there(part)
        self.counts.add_moved(wanted.digest, n_new)
        return Had(raw, blake3)

    def _part(self, digest: Digest) -> Path:
        return self._quarantine.folder / f"{hex_of(digest)}.part"

    def _download(self, wanted: Wanted, remote: Remote) -> tuple[bytes, int]:
        """The stored form, whole as far as its header tells, and how many bytes of it moved now.

        Nothing past the length that the header gives is read: a body without an end is refused. A
        long body is written as it comes, so that a kill costs no more than a frame of it.
        """
        part = self._part(wanted.digest)
        begun = _good_prefix(part, wanted)
        if begun:
            self.counts.add_resumed()
        body = Body(wanted, begun)
        limit = stored_limit(wanted) - len(begun) + 1
        with PartFile(part, len(begun)) as kept:
            for piece in remote.get(wanted.digest, start=len(begun), limit=limit):
                body.add(piece)
                kept.add(piece)
                self._task.advance(len(piece))
        if not body.is_whole:
            raise Corrupt(
                f"{wanted.what}: object {short(wanted.digest)} cut short at {body.size} bytes",
                hint="run it again: what was received is kept",
            )
        return body.joined(), body.size - len(begun)


class PartFile:
    """The file that keeps a long body as it comes; nothing is written of a short one.

    It is not synced: what is found there is checked frame by frame before it is used.
    """

    def __init__(self, path: Path, begun: int) -> None:
        self._path = path
        self._begun = begun
        self._waiting: list[bytes] = []
        self._n_waiting = 0
        self._fd: int | None = None

    def add(self, piece: bytes) -> None:
        """Take in more of the body."""
        self._waiting.append(piece)
        self._n_waiting += len(piece)
        if self._n_waiting >= SAVED_FROM_BYTES:
            self._flush()

    def __enter__(self) -> PartFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is not None and (self._fd is not None or self._begun):
                self._flush()
        finally:
            if self._fd is not None:
                os.close(self._fd)

    def _flush(self) -> None:
        with durable.translated(self._path):
            if self._fd is None:
                durable.make_dir(self._path.parent)
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self._fd = os.open(self._path, flags, 0o600)
                os.ftruncate(self._fd, self._begun)
                os.lseek(self._fd, self._begun, os.SEEK_SET)
            durable.write_all(self._fd, self._waiting, self._path)
        self._waiting, self._n_waiting = [], 0


class Body:
    """A stored form as it comes in; knows its length from its own header, which bounds it."""

    def __init__(self, wanted: Wanted, begun: bytes) -> None:
        self._wanted = wanted
        self._pieces = [begun] if begun else []
        self.size = len(begun)
        self._length: int | None = None
        self._look()

    def add(self, piece: bytes) -> None:
        """Take in more. Raises ``Corrupt`` as soon as it can't be the object."""
        self._pieces.append(piece)
        self.size += len(piece)
        self._look()

    @property
    def is_whole(self) -> bool:
        """Whether as many bytes came as the header says."""
        return self._length == self.size

    def joined(self) -> bytes:
        """All of it."""
        if len(self._pieces) > 1:
            self._pieces = [b"".join(self._pieces)]
        return self._pieces[0] if self._pieces else b""

    def _look(self) -> None:
        wanted = self._wanted
        name = f"{wanted.what}: object {short(wanted.digest)}"
        if self._length is None and self.size >= kvz.PREFIX_SIZE:
            head = self.joined()
            needed = kvz.parse_header_size(head, what=name)
            if needed > stored_limit(wanted):
                raise Corrupt(f"{name}: its header is larger than the object can be")
            if len(head) >= needed:
                header = kvz.parse_header(head[:needed], what=name)
                is_right = header.raw_size <= (wanted.limit if wanted.size is None else wanted.size)
                if header.digest != wanted.digest or not is_right:
                    raise Corrupt(f"{name}: another object lies under its name")
                self._length = header.stored_size
        if self.size > (stored_limit(wanted) if self._length is None else self._length):
            raise Corrupt(f"{name}: longer than it can be")


def _whole_blake3(stored: bytes) -> str | None:
    """The BLAKE3 of all raw bytes of what was decoded, where its header has that: one raw frame."""
    header = kvz.parse_header(stored, what="object")
    if header.codec != kvz.RAW or len(header.frames) != 1:
        return None
    return header.frames[0].blake3.hex()


def _remove_if_there(path: Path) -> None:
    if path.exists():
        durable.remove(path)


def stored_limit(wanted: Wanted) -> int:
    """The most bytes that the stored form of an object may have."""
    size = wanted.limit if wanted.size is None else wanted.size
    return size + size // 32 + HEADER_SLACK_BYTES


def _good_prefix(part: Path, wanted: Wanted) -> bytes:
    """What is kept of a body that was cut: up to the last frame that is whole and checks out."""
    try:
        with open(part, "rb", opener=durable.plain) as file:
            data = file.read(stored_limit(wanted))
    except (OSError, Corrupt):
        return b""
    try:
        header = kvz.parse_header(data, what=wanted.what)
    except KvgError:
        return b""
    if header.digest != wanted.digest or header.data_offset > len(data):
        return b""
    end = header.data_offset
    for frame in header.frames:
        stop = end + frame.stored_size
        if stop > len(data) or blake3_bytes(data[end:stop]) != frame.blake3:
            break
        end = stop
    return data[:end]
