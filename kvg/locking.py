"""The lock of a store or a remote: a kernel flock, shared or exclusive, never a pid file.

A lock that its process did not release is released by the kernel when the process ends, so there
is nothing stale to clean up. The text in the file only tells a person who waits whom to look for.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kvg import durable
from kvg.errors import Conflict, KvgError
from kvg.report import Report, SilentReport

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FIRST_PAUSE_S = 0.002
LONGEST_PAUSE_S = 0.1
SILENCE_S = 2.0
"""How long a wait may last before the report is told about it."""


class Lock:
    """The lock of one place.

    In a store ``exclusive`` is held for moving the log and for sweeping, ``shared`` for putting one
    object; in a remote the one for moving a pointer. Readers take none. A thread that holds it may
    take it again. Each holding has a descriptor of its own, so threads of one process exclude one
    another as processes do.
    """

    def __init__(
        self, path: Path, *, wait_s: float | None = None, report: Report | None = None
    ) -> None:
        """``wait_s``: how long to wait for another holder; None waits for as long as it takes."""
        self._path = path
        self._wait_s = wait_s
        self._report: Report = report or SilentReport()
        self._held = threading.local()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the lock alone. Raises ``Conflict`` naming the holder when it is not had in time."""
        with self._hold(fcntl.LOCK_EX):
            yield

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Hold the lock together with other sharers. Raises ``Conflict`` as ``exclusive`` does."""
        with self._hold(fcntl.LOCK_SH):
            yield

    def is_held(self) -> bool:
        """Whether this thread holds the lock exclusively."""
        return self._mode() == fcntl.LOCK_EX

    def _mode(self) -> int:
        mode: tuple[int, int] = getattr(self._held, "mode", (0, 0))
        return mode[1] if mode[0] == os.getpid() else 0

    @contextmanager
    def _hold(self, mode: int) -> Iterator[None]:
        held = self._mode()
        if held in (fcntl.LOCK_EX, mode):
            yield
            return
        if held:
            raise KvgError(f"{self._path}: a shared lock cannot become exclusive")
        fd = self._open()
        try:
            self._acquire(fd, mode)
            if mode == fcntl.LOCK_EX:
                _sign(fd)
            self._held.mode = (os.getpid(), mode)
            try:
                yield
            finally:
                self._held.mode = (0, 0)
        finally:
            os.close(fd)

    def _open(self) -> int:
        with durable.translated(self._path):
            try:
                flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
                fd = durable.open_in_folder(self._path, flags, 0o666)
                durable.open_to_group(self._path)
                return fd
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                    raise
                return durable.plain(str(self._path))

    def _acquire(self, fd: int, mode: int) -> None:
        began = time.monotonic()
        pause, told = FIRST_PAUSE_S, False
        while not _try_flock(fd, mode, self._path):
            waited = time.monotonic() - began
            if self._wait_s is not None and waited >= self._wait_s:
                raise Conflict(
                    f"{self._path}: locked by {holder(fd)}, not had in {self._wait_s:g} s",
                    hint="wait for it to end, or give a longer --lock-wait",
                )
            if waited >= SILENCE_S and not told:
                self._report.notice(f"waiting for {self._path}, locked by {holder(fd)}")
                told = True
            left = pause if self._wait_s is None else min(pause, self._wait_s - waited)
            time.sleep(max(left, 0.0))
            pause = min(2 * pause, LONGEST_PAUSE_S)


def _try_flock(fd: int, mode: int, path: Path) -> bool:
    try:
        fcntl.flock(fd, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        durable.raise_translated(error, path)
    return True


def _sign(fd: int) -> None:
    """Leave word of who holds the lock. A full disk must not keep anyone from locking."""
    words = " ".join(os.path.basename(arg) for arg in sys.argv[:2])[:80]
    text = f"process {os.getpid()} on {os.uname().nodename} ({words})\n".encode()
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, text, 0)
    except OSError:
        return


def holder(fd: int) -> str:
    """Who holds the lock of the open file ``fd``, in words: the kernel's word, else the file's."""
    pids = _kernel_holders(os.fstat(fd))
    if pids:
        return ", ".join(f"process {pid}{_command(pid)}" for pid in pids[:4])
    try:
        text = os.pread(fd, 200, 0).decode("utf-8", "replace")
    except OSError:
        text = ""
    return _plain(text) or "another process"


def _plain(text: str) -> str:
    """``text`` on one line, without what a terminal would act on: others wrote it."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _kernel_holders(found: os.stat_result) -> tuple[int, ...]:
    """The processes that hold a flock on the file, as far as this machine can see them."""
    wanted = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as lines:
            rows = [line.split() for line in lines]
    except OSError:
        return ()
    return tuple(
        int(row[4])
        for row in rows
        if len(row) == 8 and row[1] == "FLOCK" and row[5] == wanted and int(row[4]) > 0
    )


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(4096).split(b"\0")
    except OSError:
        return ""
    text = b" ".join(os.path.basename(word) for word in words[:4] if word)
    plain = _plain(text.decode("utf-8", "replace"))[:80]
    return f" ({plain})" if plain else ""
