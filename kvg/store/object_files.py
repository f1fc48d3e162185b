"""The files of objects, read: checked against the digest that names each, or said not to be.

Readers take no lock: files are written once and whole.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kvg import durable
from kvg.digest import PREFIX, Digest, blake3_hex, hex_of, is_digest, parse_prefix, short
from kvg.errors import Corrupt, KvgError, NotFound, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.buffers import Buffers
    from kvg.codec import Checked, PieceReader

LIMIT_BYTES = 1 << 30
"""The largest object whose size the caller doesn't state."""

SENT_BYTES = 256 << 10
"""How much of a file is read at once where it goes on elsewhere."""

MAPPED_BYTES = 16 << 20
"""How much of a file is mapped at once: to map and to unmap takes as long as to read 40 KB."""

HEADER_SLACK_BYTES = 1 << 16

_ABSENT = (FileNotFoundError, NotADirectoryError)
"""What lies in place of a folder holds no object."""


class _OpenFile:
    """An object's file, open to be read. Raises what the system's errors stand for."""

    def __init__(self, fd: int, path: str, size: int) -> None:
        self.fd = fd
        self.path = path
        self.size = size

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill ``buffer`` from ``position``; how many bytes there were."""
        with durable.translated(self.path):
            return os.preadv(self.fd, [buffer], position)

    def read(self) -> bytes:
        """All of it; less when the file got shorter (its header will tell)."""
        parts: list[bytes] = []
        left = self.size
        with durable.translated(self.path):
            while left > 0 and (part := os.read(self.fd, min(left, 1 << 30))):
                parts.append(part)
                left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def mapped(self, position: int, n_bytes: int) -> Iterator[memoryview]:
        """``n_bytes`` as the system holds them, in turn, each good until the next."""
        import mmap

        end = position + n_bytes
        while position < end:
            begin = position - position % MAPPED_BYTES
            size = min(MAPPED_BYTES, end - begin)
            with (
                mmap.mmap(self.fd, size, prot=mmap.PROT_READ, offset=begin) as mapping,
                memoryview(mapping) as whole,
                whole[position - begin :] as view,
            ):
                yield view
            position = begin + size


class ObjectFiles:
    """The files in the folder of a store's objects, to be read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._prefix = f"{folder}{os.sep}"
        self._own: Buffers | None = None

    def stored_path(self, digest: Digest) -> Path:
        """Where the object's file lies."""
        name = hex_of(digest)
        return self.folder / name[:2] / name[2:]

    def _stored(self, digest: Digest) -> str:
        """The same as a string: joining paths costs more than looking whether a file is there."""
        name = hex_of(digest)
        return f"{self._prefix}{name[:2]}{os.sep}{name[2:]}"

    def has(self, digest: Digest) -> bool:
        """Whether a file is there under the object's name. It proves nothing about its bytes."""
        try:
            return stat.S_ISREG(os.stat(self._stored(digest)).st_mode)
        except _ABSENT:
            return False
        except OSError as error:
            if error.errno == errno.ELOOP:
                return False
            durable.raise_translated(error, self._stored(digest))

    def stored_size(self, digest: Digest) -> int:
        """Bytes of the object's file. Raises ``NotFound``."""
        path = self._stored(digest)
        try:
            return os.stat(path).st_size
        except _ABSENT:
            raise NotFound(f"{path}: no such file") from None
        except OSError as error:
            durable.raise_translated(error, path)

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
        is cut meanwhile kills the process (``kvg.forked``). Raises ``Corrupt``.
        """
        from kvg import codec as kvz

        with self._opened(digest, what) as file:
            found = kvz.check_raw(
                file.read_into,
                file.size,
                digest=digest,
                size=size,
                what=f"{what}: object {short(digest)}",
                head_bytes=head_bytes,
                with_blake3=with_blake3,
                buffers=self._buffers(),
                pieces=file.mapped if is_mapped else None,
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

        name = f"{what}: object {short(digest)}"
        with self._opened(digest, what) as file:
            yield kvz.open_pieces(file.read_into, file.size, digest=digest, size=size, what=name)

    def read_ahead(self, digest: Digest) -> None:
        """Have the system fetch the object's file into its cache; nothing is read or checked."""
        if not hasattr(os, "posix_fadvise"):
            return
        try:
            with self._opened(digest, "read ahead") as file:
                os.posix_fadvise(file.fd, 0, 0, os.POSIX_FADV_WILLNEED)
        except (KvgError, OSError):
            return  # whoever reads it says what is wrong

    def read_stored(self, digest: Digest, *, what: str, limit: int = LIMIT_BYTES) -> bytes:
        """The bytes of the file, unchecked. ``limit`` bounds the *raw* size it may stand for."""
        with self._opened(digest, what) as file:
            if file.size > limit + limit // 32 + HEADER_SLACK_BYTES:
                raise Corrupt(f"{what}: object {short(digest)} is too large: {file.size} bytes")
            return file.read()

    def checked_file(self, digest: Digest, *, size: int | None, what: str) -> StoredFile | None:
        """The file of an object in codec 0, every byte checked; None for one in another codec.

        Raises ``Corrupt`` naming ``what``.
        """
        from kvg import codec as kvz

        with self._opened(digest, what) as file:
            found = kvz.check_raw(
                file.read_into,
                file.size,
                digest=digest,
                size=size,
                what=what,
                head_bytes=0,
                with_blake3=False,
                limit=LIMIT_BYTES,
                buffers=self._buffers(),
            )
        return None if found is None else StoredFile(file.path, file.size)

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

        with self._opened(digest, what) as file:
            pieces = kvz.checked_pieces(
                file.read_into,
                file.size,
                digest=digest,
                size=size,
                what=what,
                limit=LIMIT_BYTES,
                buffers=self._buffers(),
            )
            yield pieces, file.size

    def all(self) -> Iterator[Digest]:
        """Every object's digest, ascending. Names that are no objects are passed over."""
        for prefix in durable.names_in(self.folder):
            if len(prefix) == 2:
                for rest in durable.names_in(self._prefix + prefix):
                    name = PREFIX + prefix + rest
                    if is_digest(name):
                        yield name

    def count(self) -> int:
        """About how many objects there are: names that are no objects are counted too."""
        names = (name for name in durable.names_in(self.folder) if len(name) == 2)
        return sum(len(durable.names_in(self._prefix + name)) for name in names)

    def strays(self) -> Iterator[Path]:
        """What lies in the folder and can be no object by its name, and folders that are links."""
        for prefix in durable.names_in(self.folder):
            folder = self._prefix + prefix
            is_right = _is_hex(prefix) and len(prefix) == 2 and os.path.isdir(folder)
            if not is_right or os.path.islink(folder):
                yield self.folder / prefix
                continue
            for rest in durable.names_in(folder):
                if not is_digest(PREFIX + prefix + rest):
                    yield self.folder / prefix / rest

    def resolve(self, prefix: str) -> Digest:
        """The one object whose digest begins with ``prefix`` (at least 6 hex digits).

        Raises ``NotFound``, and ``UsageError`` when several do.
        """
        digits = parse_prefix(prefix)
        names = durable.names_in(self.folder / digits[:2])
        found = [
            n for n in names if n.startswith(digits[2:]) and is_digest(PREFIX + digits[:2] + n)
        ]
        if not found:
            raise NotFound(f"{prefix}: no such object", hint="kvg ls")
        if len(found) > 1:
            raise UsageError(f"{prefix}: stands for {len(found)} objects", hint="give more digits")
        return Digest(PREFIX + digits[:2] + found[0])

    def _buffers(self) -> Buffers:
        """Those of this folder."""
        if self._own is None:
            from kvg.buffers import Buffers

            self._own = Buffers()
        return self._own

    @contextmanager
    def _opened(self, digest: Digest, what: str) -> Iterator[_OpenFile]:
        """The object's file. Raises ``Corrupt`` naming ``what``."""
        path = self._stored(digest)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except _ABSENT:
            raise Corrupt(f"{what}: object {short(digest)} missing", hint="kvg fsck") from None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise Corrupt(f"{path}: a link, not an object", hint="kvg fsck") from None
            durable.raise_translated(error, path)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise Corrupt(f"{path}: not a file", hint="kvg fsck")
            yield _OpenFile(fd, path, found.st_size)
        finally:
            os.close(fd)


def _is_hex(text: str) -> bool:
    return not set(text) - set("0123456789abcdef")


class Damaged(Corrupt):
    """An object here turned out to be damaged while it was read: what came of it is worthless."""


class CheckedFile:
    """An object's file, read in pieces each of which is good until the next, and checked meanwhile.

    Reading it raises ``Damaged``, at the end perhaps. For one thread.
    """

    def __init__(self, folder: ObjectFiles, digest: Digest, size: int | None, what: str) -> None:
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
