"""Pending roots: what a writer is about to rely on, so that gc leaves it alone. No clocks.

A writer lists each digest, new or reused, in a file of its own *before* it looks whether the object
is there, and holds the file flocked for the time of its work. gc takes the digests of every file
that is still flocked as roots, and removes the files that are not: their writers have ended.
"""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kvg import durable
from kvg.digest import Digest, is_digest
from kvg.errors import Corrupt, NotFound
from kvg.store.layout import check_no_link

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from kvg.digest import Buffer
    from kvg.store.objects import ObjectFolder, PutResult

FOLDER = "pending"
_MOST_LINE_BYTES = 128


class Pending:
    """The pending roots of one piece of work; made by ``Store.pending``, safe to use by threads."""

    def __init__(self, objects: ObjectFolder, fd: int, path: Path) -> None:
        self._objects = objects
        self._fd = fd
        self._path = path
        self._guard = threading.Lock()
        self._added: set[Digest] = set()
        self.new_objects = 0
        """How many objects this work wrote."""
        self.bytes_stored = 0
        """How many bytes of stored form this work wrote."""

    def add(self, digest: Digest) -> None:
        """Make ``digest`` a root until this work ends. Raises ``NoSpace``."""
        with self._guard:
            if digest in self._added:
                return
            with durable.translated(self._path):
                durable.write_all(self._fd, [f"{digest}\n".encode()], self._path)
            self._added.add(digest)

    def keep(self, digest: Digest) -> bool:
        """Make ``digest`` a root, and say whether its object is there to be reused."""
        self.add(digest)
        with self._objects.lock.shared():
            return self._objects.has(digest)

    def put(
        self,
        raw: Buffer | Sequence[Buffer],
        *,
        digest: Digest | None = None,
        data_start: int = 0,
        element: int = 1,
        codec: int | None = None,
        threads: int = 1,
        blake3: bytes | None = None,
    ) -> PutResult:
        """Make the object a root, then store it: see ``ObjectFolder.put``."""
        result = self._objects.put(
            raw,
            digest=digest,
            data_start=data_start,
            element=element,
            codec=codec,
            threads=threads,
            before=self.add,
            blake3=blake3,
        )
        if result.new:
            with self._guard:
                self.new_objects += 1
                self.bytes_stored += result.stored_size
        return result


@contextmanager
def open_pending(objects: ObjectFolder, staging: Path) -> Iterator[Pending]:
    """Pending roots for the time of the ``with`` block; its file is gone afterwards."""
    folder = staging / FOLDER
    check_no_link(str(folder))
    durable.make_dir(folder)
    fd, path = _claim(folder)
    try:
        yield Pending(objects, fd, path)
    finally:
        try:
            with durable.translated(path):
                durable.step("unlink", path)
                os.unlink(path)
        except NotFound:
            pass
        finally:
            os.close(fd)


def _claim(folder: Path) -> tuple[int, Path]:
    with durable.translated(folder):
        return durable.claim(folder, "roots", mode=0o644)


def live_roots(staging: Path) -> frozenset[Digest]:
    """Every digest that some live writer relies on. Call it under the exclusive store lock."""
    roots: set[Digest] = set()
    for path in _files(staging):
        fd = _open(path)
        if fd is None:
            continue
        try:
            if not _is_dead(fd):
                roots.update(_read(fd, path))
        finally:
            os.close(fd)
    return frozenset(roots)


def remove_dead(staging: Path) -> int:
    """Remove the files of writers that have ended; returns how many. Needs the exclusive lock."""
    removed = 0
    for path in _files(staging):
        fd = _open(path)
        if fd is None:
            continue
        try:
            if _is_dead(fd):
                durable.remove(path)
                removed += 1
        finally:
            os.close(fd)
    return removed


def _files(staging: Path) -> tuple[Path, ...]:
    """Raises ``Corrupt`` where no folder is there that is the store's: nobody knows its writers."""
    folder = staging / FOLDER
    check_no_link(str(folder))
    try:
        return tuple(sorted(folder.iterdir()))
    except FileNotFoundError:
        return ()
    except NotADirectoryError:
        raise Corrupt(
            f"{folder}: no folder, which belongs there",
            hint="end all writers of the store, then kvg fsck --repair",
        ) from None


def _open(path: Path) -> int | None:
    try:
        return durable.plain(str(path))
    except FileNotFoundError:
        return None


def _is_dead(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(fd: int, path: Path) -> Iterator[Digest]:
    """The digests of one file; a last line that its writer has not finished is not one yet."""
    with os.fdopen(os.dup(fd), "rb") as file:
        while line := file.readline(_MOST_LINE_BYTES):
            text = line.rstrip(b"\n").decode("ascii", "replace")
            if is_digest(text):
                yield text
            elif line.endswith(b"\n") or len(line) == _MOST_LINE_BYTES:
                raise Corrupt(f"{path}: not a list of digests", hint="end its writer, then rerun")
