"""The object folder: write-once files in stored form (KVZ1), each named by its digest.

The name is the digest of the *raw* bytes. A file is staged, synced and renamed into place, so what
is there is whole, unless the disk lied; so reading checks everything and presence proves nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from kvg import durable
from kvg.digest import (
    Buffer,
    Digest,
    hex_of,
    sha256_all,
    short,
)
from kvg.errors import Corrupt, Incompatible, NoSpace, NotFound
from kvg.frozen import frozen
from kvg.store.layout import check_no_link
from kvg.store.object_files import LIMIT_BYTES, ObjectFiles
from kvg.store.quota import Quota

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.codec import Header, Stored
    from kvg.locking import Lock
    from kvg.store.later import Later
    from kvg.store.part import Part

R = TypeVar("R")

FILE_MODE = 0o444
ROOM_THERE = "kvg remote gc; or, at that store, allow more with kvg quota SIZE"
"""What helps who writes into a store that is a remote."""


@frozen
class PutResult:
    """One put: the object's digest, whether it was written now, and its size in stored form."""

    digest: Digest
    new: bool
    stored_size: int


class ObjectFolder(ObjectFiles):
    """The objects of one store. Readers take no lock; a put holds the store's lock shared."""

    def __init__(
        self,
        folder: Path,
        *,
        staging: Path,
        lock: Lock,
        codec: Callable[[], int],
        quota: Quota | None = None,
        is_named_for_good: bool = True,
        late_bytes: int = 0,
    ) -> None:
        """``staging`` is on the file system of ``folder``; ``codec`` gives the codec for puts.

        ``is_named_for_good``: False where a loss of power may take names again. ``late_bytes``:
        files up to this long are synced together, by who adopts them; until then it may take their
        bytes too. Longer ones get their names in the background, once they are synced: see
        ``settle``.
        """
        super().__init__(folder)
        self.late_bytes = late_bytes
        self.lock = lock
        self.quota = quota or Quota(folder.parent, limit=lambda: None)
        self._staging = staging
        self._codec = codec
        self._is_named_for_good = is_named_for_good
        self._own_later: Later | None = None
        self._later_guard = threading.Lock()

    def put(
        self,
        raw: Buffer | Sequence[Buffer],
        *,
        digest: Digest | None = None,
        data_start: int = 0,
        element: int = 1,
        codec: int | None = None,
        threads: int = 1,
        before: Callable[[Digest], None] | None = None,
        blake3: bytes | None = None,
    ) -> PutResult:
        """Store the object with the bytes ``raw``; durable when this returns.

        ``digest``: the SHA-256 of ``raw`` where the caller has computed it from these very bytes.
        ``blake3``: as ``digest``, that of ``raw``.
        ``data_start``: offset in ``raw`` that codec 0 puts on a 4096 boundary. ``element``: bytes
        per element, for codec 2. ``codec``: None takes ``store.codec``. ``before`` is called with
        the digest before anything is looked at.
        An object that is there and sound is left alone; a damaged one is replaced.
        Raises ``NoSpace``, ``Conflict`` when the lock is not had.
        """
        data = raw if isinstance(raw, bytes | bytearray | memoryview) else b"".join(raw)
        digest = digest or sha256_all([data])
        if before is not None:
            before(digest)
        size = len(memoryview(data).cast("B"))

        def encode() -> tuple[int, Iterable[Buffer]]:
            stored = self._encode(digest, data, data_start, element, codec, threads, blake3)
            return stored.size_bytes, stored.parts()

        return self._put(digest, size, threads, encode)

    def put_received(
        self,
        raw: memoryview,
        stored: Buffer,
        *,
        digest: Digest,
        data_start: int,
        element: int,
        blake3: bytes | None = None,
    ) -> PutResult:
        """As ``put``, of what the caller has decoded ``stored`` to, every byte of it checked.

        ``stored`` is kept as it stands where a put would give that form. ``blake3``: that of
        ``raw`` where the caller has it.
        """
        from kvg import codec as kvz

        header = kvz.parse_header(stored, what=short(digest))
        if self.keeps(header, data_start=data_start, element=element):
            return self._put(digest, len(raw), 1, lambda: (header.stored_size, [stored]))
        return self.put(raw, digest=digest, data_start=data_start, element=element, blake3=blake3)

    def keeps(self, header: Header, *, data_start: int, element: int) -> bool:
        """Whether a put would give an object the form that ``header`` is of."""
        from kvg import codec as kvz

        wanted, planes = self._form(element, None)
        is_placed = wanted != kvz.RAW or (header.data_offset + data_start) % kvz.ALIGNMENT == 0
        is_same = (header.codec, header.planes) == (wanted, planes)
        return is_same and is_placed and header.frame_raw_size == kvz.FRAME_SIZE

    def part_path(self, digest: Digest) -> Path:
        """Where the object's stored form lies while it comes."""
        return self.folder / f"{hex_of(digest)}.part"

    def reserve_part(self, part: Part, size_bytes: int) -> None:
        """Count ``part``, about to be written, as the ``size_bytes`` that it will have.

        The file has that size from here on, so that whoever takes the sum counts it too. Raises
        ``NoSpace``.
        """

        def reserve(is_counted: bool) -> bool | None:
            there = os.fstat(part.fd).st_size
            if not self.quota.reserve(size_bytes - there, is_counted=is_counted):
                return None
            with durable.translated(part.path):
                os.ftruncate(part.fd, size_bytes)
            return True

        self._with_room(reserve)

    def put_part(self, part: Part, digest: Digest) -> PutResult:
        """As ``put_received``, of a ``part`` that was reserved and has the form that is kept."""
        path = self.stored_path(digest)
        with self.lock.shared():
            check_no_link(os.path.dirname(path))
            self._publish(digest, part.stage(path, mode=FILE_MODE))
        return PutResult(digest, True, part.size)

    def settle(self, digest: Digest | None = None) -> None:
        """Wait until what was put of ``digest`` (None: of all) has its name, synced.

        Raises what kept it from that, ``NoSpace`` for one: then nothing is there.
        """
        later = self._own_later
        if later is not None:
            later.settle_all() if digest is None else later.settle(digest)

    def _later(self) -> Later:
        """What waits for the disk in the background."""
        with self._later_guard:
            if self._own_later is None:
                from kvg.store.later import Later

                self._own_later = Later()
            return self._own_later

    def _publish(self, digest: Digest, staged: durable.Staged) -> None:
        """Give a file its name, in the background where a reader of it can wait: see ``settle``."""
        path, size_bytes = self.stored_path(digest), staged.size_bytes

        def publish() -> None:
            with self.lock.shared():
                replaced = _size_of(path)
                try:
                    staged.publish(
                        is_named_for_good=self._is_named_for_good,
                        is_synced=size_bytes > self.late_bytes,
                    )
                except BaseException:
                    self.quota.release(size_bytes)
                    raise
                self.quota.release(replaced)

        if self.late_bytes and size_bytes > self.late_bytes:
            self._later().begin(digest, publish)
        else:
            publish()

    def keep_part(self, part: Part) -> None:
        """Leave what came of an object, and count nothing more."""
        n_over = _size_of(part.path) - part.size
        part.keep()
        self.quota.release(n_over)

    def remove_part(self, part: Part) -> None:
        """Take away what came of an object, and count it no longer."""
        size_bytes = _size_of(part.path)
        part.remove()
        self.quota.release(size_bytes)

    def counted(self, parts: Iterable[Buffer]) -> Generator[Buffer, None, None]:
        """``parts`` of the stored form of an object that is written here by another way than a put.

        Each is reserved when it is asked for and has to be written before the next one is; none is
        given before there is room for all that the header speaks of. What is not written to the end
        stays counted until the sum is taken anew. Close it where it is not read to its end. Raises
        ``NoSpace``.
        """
        is_first = True
        for part in parts:
            size_bytes = memoryview(part).nbytes
            if is_first:
                self._check_room(max(size_bytes, _told_size(part)))
                is_first = False
            while True:
                with self.lock.shared():  # until it is written: who takes the sum sees it
                    if self.quota.reserve(size_bytes, is_counted=False):
                        yield part
                        break
                self._check_room(size_bytes)

    def _check_room(self, size_bytes: int) -> None:
        """Raise ``NoSpace`` where ``size_bytes`` more have no room, by a sum that holds."""

        def attempt(is_counted: bool) -> bool | None:
            if not self.quota.reserve(size_bytes, is_counted=is_counted):
                return None
            self.quota.release(size_bytes)
            return True

        try:
            self._with_room(attempt)
        except NoSpace as error:
            raise NoSpace(error.message, hint=ROOM_THERE) from None

    def _put(
        self,
        digest: Digest,
        size: int,
        threads: int,
        encode: Callable[[], tuple[int, Iterable[Buffer]]],
    ) -> PutResult:
        """Write what ``encode`` gives (its size and its parts) unless a sound object is there."""

        def put(is_counted: bool) -> PutResult | None:
            stored_size = self._sound_size(digest, size, threads)
            if stored_size is not None:
                return PutResult(digest, False, stored_size)
            needed, parts = encode()
            if not self.quota.reserve(needed, is_counted=is_counted):
                return None
            return PutResult(digest, True, self._write(digest, needed, parts))

        return self._with_room(put)

    def _with_room(self, attempt: Callable[[bool], R | None]) -> R:
        """What ``attempt`` gives under the shared lock.

        None: it found no room; it is called once more after the sum was taken anew, with True.
        """
        is_counted = False
        while True:
            with self.lock.shared():
                found = attempt(is_counted)
                if found is not None:
                    return found
            with self.lock.exclusive():
                self.quota.recount()
                is_counted = True

    def _write(self, digest: Digest, needed: int, parts: Iterable[Buffer]) -> int:
        path = self.stored_path(digest)
        check_no_link(os.path.dirname(path))
        try:
            staged = durable.stage(
                path,
                parts,
                staging=self._staging,
                mode=FILE_MODE,
                is_named_for_good=self._is_named_for_good,
            )
        except BaseException:
            self.quota.release(needed)
            raise
        self._publish(digest, staged)
        return staged.size_bytes

    def _encode(
        self,
        digest: Digest,
        data: Buffer,
        data_start: int,
        element: int,
        codec: int | None,
        threads: int,
        blake3: bytes | None,
    ) -> Stored:
        from kvg import codec as kvz

        wanted, planes = self._form(element, codec)
        return kvz.encode(
            data,
            digest=digest,
            codec=wanted,
            planes=planes,
            data_start=data_start if wanted == kvz.RAW else 0,
            threads=threads,
            blake3=blake3,
        )

    def _form(self, element: int, codec: int | None) -> tuple[int, int]:
        """The codec, and how many planes, of what has elements of ``element`` bytes."""
        from kvg import codec as kvz

        wanted = self._codec() if codec is None else codec
        if wanted == kvz.PLANES and element == 1:
            wanted = kvz.ZSTD
        return wanted, element if wanted == kvz.PLANES else 1

    def put_stored(
        self, stored: Buffer, *, digest: Digest, size: int | None = None, what: str
    ) -> PutResult:
        """Store an object received in stored form, as it stands, after checking all of it.

        Raises ``Corrupt`` naming ``what`` unless it decodes to ``size`` bytes with this digest.
        """
        from kvg import codec as kvz

        raw = kvz.decode(stored, digest=digest, size=size, what=what, limit=LIMIT_BYTES)
        return self._put(digest, len(raw), 1, lambda: (len(stored), [stored]))

    def is_sound(self, digest: Digest, size: int) -> bool:
        """Whether the object is there and whole by its own checksums; its SHA-256 is not taken."""
        return self._sound_size(digest, size, 1) is not None

    def adopt(self, other: ObjectFolder, digests: Iterable[Digest]) -> None:
        """Move objects that ``other``, on the same file system, has checked to here, in order.

        What is here under their names is replaced. The quota counted them when they were put there.
        """
        other.settle()
        with self.lock.shared():
            moved: list[tuple[Path, Path]] = []
            replaced = 0
            for digest in digests:
                check_no_link(os.path.dirname(self._stored(digest)))
                replaced += _size_of(self.stored_path(digest))
                moved.append((other.stored_path(digest), self.stored_path(digest)))
            late = [path for path, _ in moved if _size_of(path) <= other.late_bytes]
            durable.sync_files(late)
            durable.move_all(moved)
            self.quota.release(replaced)

    def _sound_size(self, digest: Digest, size: int, threads: int) -> int | None:
        """The stored size of an object that is there and whole by its own checksums, else None."""
        if not self.has(digest):
            return None
        try:
            self.read(digest, size=size, what=short(digest), check_digest=False, threads=threads)
            return self.stored_size(digest)
        except (Corrupt, NotFound):
            return None

    def remove(self, digest: Digest) -> int:
        """Remove the object; returns the bytes freed. Only under the exclusive store lock."""
        return self.remove_all([digest])

    def remove_all(self, digests: Sequence[Digest]) -> int:
        """Remove objects, durably; returns the bytes freed. Only under the exclusive lock."""
        for prefix in {os.path.dirname(self._stored(digest)) for digest in digests}:
            check_no_link(prefix)
        size = sum(self.stored_size(digest) for digest in digests if self.has(digest))
        durable.remove_all(self.stored_path(digest) for digest in digests)
        self.quota.release(size)
        return size


def _told_size(stored: Buffer) -> int:
    """How long the header at the beginning of ``stored`` says that all of it is; 0 without one."""
    from kvg import codec as kvz

    try:
        return kvz.parse_header(stored, what="header").stored_size
    except (Corrupt, Incompatible):
        return 0


def _size_of(path: Path) -> int:
    try:
        return path.stat(follow_symlinks=False).st_size
    except OSError:
        return 0
