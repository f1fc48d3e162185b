"""The object folder: write-once files in stored form (KVZ1), each named by its digest.

The name is the digest of the *raw* bytes. A file is staged, synced and renamed into place, so what
is there is whole, unless the disk lied; so reading checks everything and presence proves nothing.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kvg import durable
from kvg.digest import (
    PREFIX,
    Buffer,
    Digest,
    blake3_hex,
    hex_of,
    is_digest,
    parse_prefix,
    sha256_all,
    short,
)
from kvg.errors import Corrupt, KvgError, NotFound, UsageError
from kvg.frozen import frozen
from kvg.store.layout import check_no_link
from kvg.store.quota import Quota

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.buffers import Buffers
    from kvg.codec import Checked, Header, PieceReader, Stored
    from kvg.store.lock import Lock
    from kvg.store.part import Part

R = TypeVar("R")

LIMIT_BYTES = 1 << 30
"""The largest object whose size the caller doesn't state."""

SENT_BYTES = 256 << 10
"""How much of a file is read at once where it goes on elsewhere."""

MAPPED_BYTES = 4 << 20
"""How much of a file is mapped at once."""

HEADER_SLACK_BYTES = 1 << 16
FILE_MODE = 0o444


@frozen
class PutResult:
    """One put: the object's digest, whether it was written now, and its size in stored form."""

    digest: Digest
    new: bool
    stored_size: int


class ObjectFolder:
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
        bytes too.
        """
        self.late_bytes = late_bytes
        self.folder = folder
        self.lock = lock
        self.quota = quota or Quota(folder.parent, limit=lambda: None)
        self._staging = staging
        self._codec = codec
        self._is_named_for_good = is_named_for_good
        self._prefix = f"{folder}{os.sep}"
        self._own: Buffers | None = None

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
            replaced = _size_of(path)
            part.publish(path, mode=FILE_MODE, is_synced=part.size > self.late_bytes)
            self.quota.release(replaced)
        return PutResult(digest, True, part.size)

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
        replaced = _size_of(path)
        try:
            written = durable.write_new(
                path,
                parts,
                staging=self._staging,
                mode=FILE_MODE,
                is_named_for_good=self._is_named_for_good,
                is_synced=needed > self.late_bytes,
            )
        except BaseException:
            self.quota.release(needed)
            raise
        self.quota.release(replaced)
        return written

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

    def has(self, digest: Digest) -> bool:
        """Whether a file is there under the object's name. It proves nothing about its bytes."""
        try:
            return stat.S_ISREG(os.stat(self._stored(digest)).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            if error.errno == errno.ELOOP:
                return False
            durable.raise_translated(error, self._stored(digest))

    def read(
        self,
        digest: Digest,
        *,
        size: int | None = None,
        what: str,
        check_digest: bool = True,
        threads: int = 1,
        limit: int = LIMIT_BYTES,
    ) -> memoryview:
        """The raw bytes of the object, checked: every frame, and the whole when ``check_digest``.

        ``size``: the raw size where something signed states it; ``limit`` bounds it otherwise.
        Raises ``Corrupt`` naming ``what`` when anything differs and when the object is missing.
        """
        from kvg import codec as kvz

        name = f"{what}: object {short(digest)}"
        stored = self.read_stored(digest, what=what, limit=limit if size is None else size)
        return kvz.decode(
            stored,
            digest=digest,
            size=size,
            what=name,
            threads=threads,
            check_digest=check_digest,
            limit=limit if size is None else max(size, 1),
        )

    def check(
        self,
        digest: Digest,
        *,
        size: int,
        what: str,
        head_bytes: int,
        with_blake3: bool = True,
        threads: int = 1,
        is_mapped: bool = False,
    ) -> Checked:
        """Check every byte of the object as ``read`` does, and hold none of it where it can be so.

        Gives the BLAKE3 of the raw bytes and the first ``head_bytes`` of them. ``with_blake3``:
        False leaves that out, and those of the frames, where it costs anything: the SHA-256 of the
        whole covers every byte. ``is_mapped``: read through a mapping, without a copy; a file that
        is cut meanwhile kills the process (``kvg.apart``). Raises ``Corrupt``.
        """
        from kvg import codec as kvz

        name, path = f"{what}: object {short(digest)}", self._stored(digest)
        with self._opened(digest, what) as (fd, n_stored), durable.translated(path):
            found = kvz.check_raw(
                lambda buffer, position: os.preadv(fd, [buffer], position),
                n_stored,
                digest=digest,
                size=size,
                what=name,
                head_bytes=head_bytes,
                with_blake3=with_blake3,
                buffers=self._buffers(),
                pieces=partial(_mapped, fd) if is_mapped else None,
            )
        if found is not None:
            return found
        raw = self.read(digest, size=size, what=what, threads=threads)
        blake3 = blake3_hex(raw, threads=threads) if with_blake3 else None
        return kvz.Checked(blake3, bytes(raw[:head_bytes]))

    @contextmanager
    def open_pieces(self, digest: Digest, *, size: int, what: str) -> Iterator[PieceReader]:
        """A reader of the object's raw bytes, of which only the header was checked.

        Raises ``Corrupt`` naming ``what``.
        """
        from kvg import codec as kvz

        name, path = f"{what}: object {short(digest)}", self._stored(digest)
        with self._opened(digest, what) as (fd, n_stored):

            def read_into(buffer: memoryview, position: int) -> int:
                with durable.translated(path):
                    return os.preadv(fd, [buffer], position)

            yield kvz.open_pieces(read_into, n_stored, digest=digest, size=size, what=name)

    def read_ahead(self, digest: Digest) -> None:
        """Have the system fetch the object's file into its cache; nothing is read or checked."""
        if not hasattr(os, "posix_fadvise"):
            return
        try:
            with self._opened(digest, "read ahead") as (fd, _):
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_WILLNEED)
        except (KvgError, OSError):
            return  # whoever reads it says what is wrong

    def read_stored(self, digest: Digest, *, what: str, limit: int = LIMIT_BYTES) -> bytes:
        """The bytes of the file, unchecked. ``limit`` bounds the *raw* size it may stand for."""
        with self._opened(digest, what) as (fd, size):
            if size > limit + limit // 32 + HEADER_SLACK_BYTES:
                raise Corrupt(f"{what}: object {short(digest)} is too large: {size} bytes")
            with durable.translated(self._stored(digest)):
                return _read_whole(fd, size)

    def checked_file(self, digest: Digest, *, size: int | None, what: str) -> StoredFile | None:
        """The file of an object in codec 0, every byte checked; None for one in another codec.

        Raises ``Corrupt`` naming ``what``.
        """
        from kvg import codec as kvz

        with self._opened(digest, what) as (fd, n_stored), durable.translated(self._stored(digest)):
            found = kvz.check_raw(
                lambda buffer, position: os.preadv(fd, [buffer], position),
                n_stored,
                digest=digest,
                size=size,
                what=what,
                head_bytes=0,
                with_blake3=False,
                limit=LIMIT_BYTES,
                buffers=self._buffers(),
            )
        return None if found is None else StoredFile(self._stored(digest), n_stored)

    def checking_file(self, digest: Digest, *, size: int | None, what: str) -> CheckedFile | None:
        """The file of an object in codec 0, checked as it is read; None for one in another codec.

        Raises ``Corrupt`` naming ``what`` where even its header is wrong.
        """
        file = CheckedFile(self, digest, size, what)
        return file if file.is_raw() else None

    @contextmanager
    def _checked_pieces(
        self, digest: Digest, size: int | None, what: str
    ) -> Iterator[tuple[Iterator[memoryview] | None, int]]:
        """The stored form, checked as it is read, and how many bytes it has."""
        from kvg import codec as kvz

        with self._opened(digest, what) as (fd, n_stored):

            def read_into(buffer: memoryview, position: int) -> int:
                with durable.translated(self._stored(digest)):
                    return os.preadv(fd, [buffer], position)

            pieces = kvz.checked_pieces(
                read_into,
                n_stored,
                digest=digest,
                size=size,
                what=what,
                limit=LIMIT_BYTES,
                buffers=self._buffers(),
            )
            yield pieces, n_stored

    def _buffers(self) -> Buffers:
        """Those of this folder."""
        if self._own is None:
            from kvg.buffers import Buffers

            self._own = Buffers()
        return self._own

    @contextmanager
    def _opened(self, digest: Digest, what: str) -> Iterator[tuple[int, int]]:
        """The object's file, open, and its size. Raises ``Corrupt`` naming ``what``."""
        path = self._stored(digest)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            raise Corrupt(f"{what}: object {short(digest)} missing", hint="kvg fsck") from None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise Corrupt(f"{path}: a link, not an object", hint="kvg fsck") from None
            durable.raise_translated(error, path)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise Corrupt(f"{path}: not a file", hint="kvg fsck")
            yield fd, found.st_size
        finally:
            os.close(fd)

    def stored_path(self, digest: Digest) -> Path:
        """Where the object's file lies."""
        name = hex_of(digest)
        return self.folder / name[:2] / name[2:]

    def _stored(self, digest: Digest) -> str:
        """The same as a string: joining paths costs more than looking whether a file is there."""
        name = hex_of(digest)
        return f"{self._prefix}{name[:2]}{os.sep}{name[2:]}"

    def stored_size(self, digest: Digest) -> int:
        """Bytes of the object's file. Raises ``NotFound``."""
        path = self._stored(digest)
        try:
            return os.stat(path).st_size
        except OSError as error:
            durable.raise_translated(error, path)

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

    def all(self) -> Iterator[Digest]:
        """Every object's digest, ascending. Names that are no objects are passed over."""
        for prefix in _sorted_names(self.folder):
            if len(prefix) == 2:
                for rest in _sorted_names(self._prefix + prefix):
                    name = PREFIX + prefix + rest
                    if is_digest(name):
                        yield name

    def count(self) -> int:
        """About how many objects there are: names that are no objects are counted too."""
        names = (name for name in _sorted_names(self.folder) if len(name) == 2)
        return sum(len(_sorted_names(self._prefix + name)) for name in names)

    def strays(self) -> Iterator[Path]:
        """What lies in the folder and can be no object by its name, and folders that are links."""
        for prefix in _sorted_names(self.folder):
            folder = self._prefix + prefix
            is_right = _is_hex(prefix) and len(prefix) == 2 and os.path.isdir(folder)
            if not is_right or os.path.islink(folder):
                yield self.folder / prefix
                continue
            for rest in _sorted_names(folder):
                if not is_digest(PREFIX + prefix + rest):
                    yield self.folder / prefix / rest

    def resolve(self, prefix: str) -> Digest:
        """The one object whose digest begins with ``prefix`` (at least 6 hex digits).

        Raises ``NotFound``, and ``UsageError`` when several do.
        """
        digits = parse_prefix(prefix)
        names = _sorted_names(self.folder / digits[:2])
        found = [
            n for n in names if n.startswith(digits[2:]) and is_digest(PREFIX + digits[:2] + n)
        ]
        if not found:
            raise NotFound(f"{prefix}: no such object", hint="kvg ls")
        if len(found) > 1:
            raise UsageError(f"{prefix}: stands for {len(found)} objects", hint="give more digits")
        return Digest(PREFIX + digits[:2] + found[0])


def _size_of(path: Path) -> int:
    try:
        return path.stat(follow_symlinks=False).st_size
    except OSError:
        return 0


def _is_hex(text: str) -> bool:
    return not set(text) - set("0123456789abcdef")


def _sorted_names(folder: Path | str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        durable.raise_translated(error, folder)


class Damaged(Corrupt):
    """An object here turned out to be damaged while it was read: what came of it is worthless."""


class CheckedFile:
    """An object's file, read in pieces each of which is good until the next, and checked meanwhile.

    Reading it raises ``Damaged``, at the end perhaps. For one thread.
    """

    def __init__(self, folder: ObjectFolder, digest: Digest, size: int | None, what: str) -> None:
        self._of = (digest, size, what)
        self._folder = folder
        self.size_bytes = 0

    def is_raw(self) -> bool:
        """Whether it can be read so. Raises ``Corrupt``."""
        with self._folder._checked_pieces(*self._of) as (pieces, self.size_bytes):
            return pieces is not None

    def __iter__(self) -> Iterator[memoryview]:
        try:
            with self._folder._checked_pieces(*self._of) as (pieces, self.size_bytes):
                if pieces is None:
                    raise Corrupt(f"{self._of[2]}: changed while it was read", hint="kvg fsck")
                yield from pieces
        except Corrupt as error:
            raise Damaged(error.message, hint=error.hint) from None


class StoredFile:
    """An object's file, read in pieces that stay in a core's cache; again each time it is asked."""

    def __init__(self, path: str, size_bytes: int) -> None:
        self._path = path
        self.size_bytes = size_bytes

    def __iter__(self) -> Iterator[bytes]:
        with durable.translated(self._path):
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                left = self.size_bytes
                while left and (piece := os.read(fd, min(left, SENT_BYTES))):
                    left -= len(piece)
                    yield piece
            finally:
                os.close(fd)
        if left:
            raise Corrupt(f"{self._path}: became shorter while it was read", hint="kvg fsck")


def _mapped(fd: int, position: int, n_bytes: int) -> Iterator[memoryview]:
    """``n_bytes`` of an open file as the system holds them, in turn, each good until the next."""
    import mmap

    end = position + n_bytes
    while position < end:
        begin = position - position % MAPPED_BYTES
        size = min(MAPPED_BYTES, end - begin)
        with (
            mmap.mmap(fd, size, prot=mmap.PROT_READ, offset=begin) as mapping,
            memoryview(mapping) as whole,
            whole[position - begin :] as view,
        ):
            yield view
        position = begin + size


def _read_whole(fd: int, size: int) -> bytes:
    """``size`` bytes from ``fd``, fewer when the file got shorter (its header will tell)."""
    parts: list[bytes] = []
    while size > 0:
        part = os.read(fd, min(size, 1 << 30))
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
