"""Checks made in processes of their own, copied from this one: what kills one of them is survived.

A file read where the system holds it, through a mapping, is not copied first; but one that is cut
meanwhile, or that the disk does not give, kills whoever reads it. So it is read apart, and what no
process has reported good counts for nothing.
"""

from __future__ import annotations

import os
import resource
import signal
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NoReturn

_ITEM = struct.Struct("=I")
_STOPPING = (signal.SIGINT, signal.SIGTERM)


def can_fork() -> bool:
    """Whether this process may be copied: on Linux, where it has one thread, a library's counted.

    Of more threads a copy has only one, and what locks the others held stay locked in it.
    """
    try:
        return hasattr(os, "pidfd_open") and len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False


class Forked:
    """Processes that look at items from now on; close it, which ends them. Where ``can_fork``."""

    def __init__(self, is_good: Callable[[int], bool], n_items: int, *, processes: int) -> None:
        """``is_good``: what each of the items 0 to ``n_items`` - 1 is asked, in a process.

        Raises ``OSError`` where there is no file or pipe to be had for it.
        """
        with open(_queue(n_items), "rb", buffering=0) as queue:
            reports, report = os.pipe()
            self._reports = open(reports, "rb")  # noqa: SIM115 - closed by close
            with open(report, "wb", buffering=0):
                work = partial(_work, is_good, queue.fileno(), report, reports)
                self._children = _start(work, processes)

    def good(self) -> frozenset[int]:
        """The items that were found good, once all were looked at. Asked once.

        One is missing of which ``is_good`` gave False or raised, whose process died, or that no
        process could be started for: look at it here.
        """
        found = self._reports.read()
        whole = len(found) - len(found) % _ITEM.size
        return frozenset(item for (item,) in _ITEM.iter_unpack(found[:whole]))

    def close(self) -> None:
        """End the processes that are left."""
        self._reports.close()
        while self._children:
            child, handle = self._children.pop()
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            os.close(handle)
            with suppress(ChildProcessError):  # where who started kvg has it wait for nobody
                os.waitpid(child, 0)


def _queue(n_items: int) -> int:
    """A file of the items' numbers: who reads the next one takes it, for all share one position.

    It is opened by name: the system guards the position only of a file that was.
    """
    fd = os.memfd_create("items")
    with open(fd, "wb") as file:
        file.writelines(map(_ITEM.pack, range(n_items)))
        file.flush()
        return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)


def _start(work: Callable[[], NoReturn], processes: int) -> list[tuple[int, int]]:
    """As many of the processes as there is room for, each with a handle of it: a number alone is
    another's once its process is gone."""
    children: list[tuple[int, int]] = []
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
    try:
        for _ in range(processes):
            child = os.fork()
            if child == 0:
                work()
            children.append((child, os.pidfd_open(child)))
    except OSError:
        pass  # no more to be had: what they don't look at is looked at by who asked
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return children


def _work(is_good: Callable[[int], bool], queue: int, report: int, reports: int) -> NoReturn:
    """Take items until there are none, or nobody is left to be told.

    A failure ends the process, and says nothing of its item.
    """
    try:
        os.close(reports)  # whose last reader is who asked
        for number in (*_STOPPING, signal.SIGBUS):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        while item := os.read(queue, _ITEM.size):
            if is_good(*_ITEM.unpack(item)):
                os.write(report, item)
        os.close(report)  # before its memory is taken apart: who asked waits for this
    finally:
        os._exit(0)
