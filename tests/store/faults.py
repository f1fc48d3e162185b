"""Faults at a step of our choice, for every step that goes through ``kvg.durable``."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
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


def copy_tree(source: Path, target: Path) -> None:
    """``target`` as ``source`` is, and nothing else. What is never written to again is linked."""
    if target.exists():
        shutil.rmtree(target)
    if source.exists():
        _copy(os.fspath(source), os.fspath(target))


def _copy(source: str, target: str) -> None:
    os.mkdir(target)
    is_linked = _WRITTEN_ONCE.search(source) is not None
    for entry in os.scandir(source):
        there = f"{target}/{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            _copy(entry.path, there)
        elif is_linked or entry.is_symlink():
            os.link(entry.path, there, follow_symlinks=False)
        else:
            mode = entry.stat().st_mode & 0o777
            with open(entry.path, "rb") as file:
                fd = os.open(there, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
                try:
                    os.write(fd, file.read())
                finally:
                    os.close(fd)


_WRITTEN_ONCE = re.compile(r"/(objects/[0-9a-f]{2}|reserve)$")
_TEMPORARY = re.compile(r"\.[0-9]+\.[0-9]+\.[0-9a-f]{8}$")


class Judged:
    """The states of folders that were judged already.

    What follows from a state depends on nothing but the state: of faults that leave the same files
    with the same bytes, the first is judged for all. Each fault is struck all the same.
    """

    def __init__(self) -> None:
        self._seen: set[object] = set()

    def is_new(self, *state: object) -> bool:
        """Whether this is the first of its kind; a ``Path`` in it stands for what lies there."""
        key = tuple(files(item) if isinstance(item, Path) else item for item in state)
        is_new = key not in self._seen
        self._seen.add(key)
        return is_new

    def __len__(self) -> int:
        return len(self._seen)


def files(folder: Path) -> bytes:
    """Stands for every file in ``folder``: its name, mode and bytes.

    Left out is what means nothing: the number of a process in the name of a temporary, who held a
    lock last, the number that a push draws, the order of pending roots, the bytes of the reserve,
    and who reads the index.
    """
    found = hashlib.sha256()
    for line in sorted(_lines(os.fspath(folder), "")):
        found.update(line)
    return found.digest()


def _lines(folder: str, name: str) -> Iterator[bytes]:
    for entry in os.scandir(folder):
        known = f"{name}/{_TEMPORARY.sub('', entry.name)}"
        mode = entry.stat(follow_symlinks=False).st_mode
        head = f"{known} {mode} ".encode()
        if entry.is_symlink():
            yield head + os.fsencode(os.readlink(entry.path))
        elif entry.is_dir():
            lines = sorted(_lines(entry.path, known))
            yield head + hashlib.sha256(b"".join(lines)).digest()
        elif known.endswith(("/lock.mdb", "/lock")):
            yield head
        elif _RESERVE.search(known):
            yield head + b"%d" % entry.stat().st_size
        else:
            with open(entry.path, "rb") as file:
                data = file.read()
            if _PUSHING.search(known):
                data = data.partition(b" ")[0]
            if _PENDING.search(known):
                data = b"\n".join(sorted(data.split(b"\n")))
            yield head + hashlib.sha256(data).digest()


_PENDING = re.compile(r"/tmp/pending/[^/]+$")
_PUSHING = re.compile(r"/pushing/[^/]+$")
_RESERVE = re.compile(r"/reserve/[0-9]$")


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


def struck(
    record_property: Callable[[str, object], None],
    matrix: str,
    row: str,
    n_steps: int,
    n_states: int,
    points: Mapping[str, int],
) -> None:
    """Have it told and recorded how often each kind of fault struck a verb of ``n_steps`` steps.

    ``row`` is the verb, and after a comma what this is about where it has several rows.
    """
    total = sum(points.values())
    record_property(matrix, (row, f"{n_steps} steps, {n_states} states", total))
    record_property(
        "record",
        {
            "type": "crash",
            "verb": row.partition(",")[0],
            "steps": n_steps,
            "states": n_states,
            "points": total,
            "kinds": dict(points),
        },
    )
