"""The quota: a hard limit on what a store's objects and temporary files take on disk.

Bytes are reserved before they are written, so no number of writers gets past the limit together.
The file ``usage`` holds the sum, so that a put need not walk the store; it is a cache that errs on
the side of too much: what a killed writer had reserved stays counted until the sum is taken anew,
under the exclusive lock, before anything is refused. After a loss of power (another boot), and
where its checksum does not fit, it is taken anew before anything else. The log and the index are
not counted: they stay small, and a full store must still be able to say what it let go.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kvg import durable
from kvg.digest import sha256_bytes
from kvg.errors import NoSpace
from kvg.store.layout import LOST_FOUND

if TYPE_CHECKING:
    from pathlib import Path

QUOTA_KEY = "store.quota"
FILE = "usage"
COUNTED = ("objects", "tmp", LOST_FOUND)
"""The folders of a store whose files count."""

_BOOT = "/proc/sys/kernel/random/boot_id"
_BOOT_BYTES = 36
_SUM_BYTES = _BOOT_BYTES + 1 + 20
_CHECK_CHARS = 16
_LINE_BYTES = _SUM_BYTES + 1 + _CHECK_CHARS + 1


class Quota:
    """The quota of one store; without a limit it does nothing and keeps no file."""

    def __init__(
        self,
        root: Path,
        *,
        limit: Callable[[], int | None],
        origin: Callable[[], str | None] = lambda: None,
    ) -> None:
        """``origin``: the name of the store's log, so that another store's sum is none here."""
        self._root = root
        self._path = root / FILE
        self._limit = limit
        self._origin = origin

    @property
    def limit(self) -> int | None:
        """The limit in bytes; None when there is none."""
        return self._limit()

    def reserve(self, size_bytes: int, *, is_counted: bool) -> bool:
        """Count ``size_bytes`` that are about to be written.

        False: nothing was reserved; take the sum anew, then ask again with ``is_counted``, which
        raises ``NoSpace`` where it would get past the limit.
        """
        limit = self._limit()
        if limit is None:
            return True
        with self._open() as fd:
            used = self._read(fd)
            if used is not None and used + size_bytes <= limit:
                self._write(fd, used + size_bytes)
                return True
        if is_counted:
            raise NoSpace(
                f"{self._root}: quota of {limit} bytes: {used or 0} used, {size_bytes} more needed",
                hint="kvg gc, or allow more with kvg quota SIZE",
            )
        return False

    def release(self, size_bytes: int) -> None:
        """Count ``size_bytes`` no longer: they were removed, or never written."""
        if self._limit() is None or not self._path.exists():
            return
        with self._open() as fd:
            used = self._read(fd)
            if used is not None:
                self._write(fd, max(used - size_bytes, 0))

    def recount(self) -> int:
        """Take the sum anew. Only under the exclusive store lock, when nobody writes an object."""
        used = self.used()
        if self._limit() is not None:
            with self._open() as fd:
                self._write(fd, used)
        return used

    def used(self) -> int:
        """Bytes of the files that count, walked."""
        return sum(size_of(self._root / name) for name in COUNTED)

    @contextmanager
    def _open(self) -> Iterator[int]:
        with durable.translated(self._path):
            fd = durable.plain(str(self._path), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                durable.open_to_group(self._path)
                yield fd
            finally:
                os.close(fd)

    def _read(self, fd: int) -> int | None:
        """The sum; None when there is none, it is damaged, or it was taken before the last boot."""
        line = os.pread(fd, _LINE_BYTES + 1, 0)
        digits = line[_BOOT_BYTES + 1 : _SUM_BYTES]
        is_sum = digits.isdigit() and line == self._line(int(digits))
        return int(digits) if is_sum else None

    def _write(self, fd: int, used: int) -> None:
        durable.step("write", self._path)
        os.pwrite(fd, self._line(used), 0)
        os.ftruncate(fd, _LINE_BYTES)

    def _line(self, used: int) -> bytes:
        """The boot that it counts in, the sum, and the beginning of the SHA-256 of both and of
        whose it is."""
        line = _boot_id() + b" %020d" % used
        check = sha256_bytes(line + (self._origin() or "").encode()).hex()[:_CHECK_CHARS]
        return b"%b %b\n" % (line, check.encode())


def size_of(folder: Path) -> int:
    """Bytes of all files under ``folder``; 0 when it is not there. Links are not followed."""
    total = 0
    waiting = [os.fspath(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        total += _size(entry)
        except (FileNotFoundError, NotADirectoryError):
            continue
    return total


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0


def _boot_id() -> bytes:
    try:
        with open(_BOOT, "rb") as file:
            return file.read(_BOOT_BYTES).ljust(_BOOT_BYTES)
    except OSError:
        return b"unknown".ljust(_BOOT_BYTES)
