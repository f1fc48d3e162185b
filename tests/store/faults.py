"""Faults at a step of our choice, for every step that goes through ``kvg.durable``."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kvg import durable
from kvg.errors import KvgError

KILLED = 77


@contextmanager
def hooked(hook: durable.Hook) -> Iterator[None]:
    durable.set_hook(hook)
    try:
        yield
    finally:
        durable.set_hook(None)


@contextmanager
def quick_folder() -> Iterator[Path]:
    """In memory where that can be had: these tests wait for the disk thousands of times."""
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="kvg-test-", dir=place) as name:
        yield Path(name)


@dataclass
class Recorder:
    """Notes the name of every step."""

    names: list[str]

    def __call__(self, name: str, _path: str) -> None:
        self.names.append(name)


@dataclass
class Fault:
    """Does ``act`` at step number ``at``, and ``after`` at every later one."""

    at: int
    act: Callable[[], int | None]
    after: Callable[[], int | None] = lambda: None
    count: int = 0

    def __call__(self, _name: str, _path: str) -> int | None:
        self.count += 1
        if self.count < self.at:
            return None
        return self.act() if self.count == self.at else self.after()


def die() -> None:
    os._exit(KILLED)


def full() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def broken() -> None:
    raise OSError(errno.EIO, "Input/output error")


def interrupt() -> None:
    raise KeyboardInterrupt


def one_byte() -> int:
    return 1


@dataclass(frozen=True)
class Kind:
    """One kind of fault. ``steps``: the names of the steps it can strike; all of them if empty."""

    name: str
    make: Callable[[int], Fault]
    is_deadly: bool = False
    steps: tuple[str, ...] = ()


KINDS = (
    Kind("kill -9", lambda at: Fault(at, die), is_deadly=True),
    Kind("torn write, then kill -9", lambda at: Fault(at, one_byte, die), True, ("write",)),
    Kind("no space", lambda at: Fault(at, full)),
    Kind("no space from there on", lambda at: Fault(at, full, full)),
    Kind("i/o error", lambda at: Fault(at, broken)),
    Kind("interrupt", lambda at: Fault(at, interrupt)),
    Kind("short write", lambda at: Fault(at, one_byte), False, ("write",)),
    Kind("short write, then no space", lambda at: Fault(at, one_byte, full), False, ("write",)),
)


def run(work: Callable[[], object], kind: Kind, at: int) -> bool:
    """Do ``work`` with the fault at step ``at``; whether it came to its end.

    It may end, die where it was killed, or raise an error of ours, and nothing else.
    """
    if kind.is_deadly:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                durable.set_hook(kind.make(at))
                work()
                status = 0
            finally:
                os._exit(status)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert code in (0, KILLED), code
        return code == 0
    with hooked(kind.make(at)):
        try:
            work()
        except KvgError as error:
            assert error.message
            return False
        except KeyboardInterrupt:
            return False
    return True
