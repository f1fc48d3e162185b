"""Durable changes to files: the only place where kvg writes, renames or removes anything.

Every step passes through ``step``, so that a test can stop, fail or shorten each one in turn.
Guarantee: after ``write_new`` or ``replace`` returns, the file is whole under its name on disk,
also after a loss of power; before it returns, the name holds what it held before.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from kvg.digest import Buffer
from kvg.errors import KvgError, NoSpace, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Hook = Callable[[str, str], None]
"""Called with the step's name (write, fsync, rename, mkdir, unlink, chmod) and the path."""

_hook: Hook | None = None
_counter = 0


def set_hook(hook: Hook | None) -> None:
    """Install the test hook that sees every step before it happens, or remove it."""
    global _hook
    _hook = hook


def step(name: str, path: Path | str) -> None:
    """Announce one step to the hook."""
    if _hook is not None:
        _hook(name, os.fspath(path))


@contextmanager
def translated(path: Path | str) -> Iterator[None]:
    """Turn an ``OSError`` inside into one kvg error that names ``path``."""
    try:
        yield
    except OSError as error:
        raise_translated(error, path)


def raise_translated(error: OSError, path: Path | str) -> NoReturn:
    """Raise the kvg error that says what ``error`` means for ``path``."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        raise NoSpace(f"{path}: no space left", hint="free some space, then run it again") from None
    if isinstance(error, FileNotFoundError):
        raise NotFound(f"{path}: no such file") from None
    if isinstance(error, PermissionError):
        raise KvgError(f"{path}: permission denied", hint=f"check who owns {path}") from None
    if error.errno == errno.EROFS:
        raise KvgError(f"{path}: read-only file system") from None
    raise KvgError(f"{path}: {error.strerror or error}") from None


def make_dir(path: Path, *, mode: int = 0o777) -> None:
    """Make ``path`` and its parents, each durable in its parent; one that exists is left alone."""
    if path.is_dir():
        return
    make_dir(path.parent, mode=mode)
    with translated(path):
        step("mkdir", path)
        try:
            os.mkdir(path, mode)
        except FileExistsError:
            return
    sync_dir(path.parent)


def sync_dir(path: Path) -> None:
    """Make the names in the folder ``path`` durable."""
    with translated(path):
        step("fsync", path)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def write_all(fd: int, parts: Iterable[Buffer], path: Path) -> int:
    """Write every byte of ``parts`` to ``fd``; returns the bytes written."""
    size_bytes = 0
    for part in parts:
        view = memoryview(part).cast("B")
        while len(view):
            step("write", path)
            n = os.write(fd, view)
            view = view[n:]
            size_bytes += n
    return size_bytes


def temporary_name(folder: Path, label: str) -> Path:
    """A name in ``folder`` that no other live process uses."""
    global _counter
    _counter += 1
    return folder / f"{label}.{os.getpid()}.{_counter}.{os.urandom(4).hex()}"


def write_new(
    path: Path, parts: Iterable[Buffer], *, staging: Path, mode: int = 0o444
) -> int:
    """Write a file that nobody has yet: staged in ``staging``, synced, renamed to ``path``.

    The two must be on one file system. An existing ``path`` is replaced by the same bytes (callers
    name files by digest). Returns the bytes written; nothing is left behind on failure.
    """
    return _publish(path, parts, staging=staging, mode=mode)


def replace(path: Path, parts: Iterable[Buffer], *, staging: Path, mode: int = 0o644) -> int:
    """Replace ``path`` by new bytes in one step: readers see the old file or the new, whole."""
    return _publish(path, parts, staging=staging, mode=mode)


def _publish(path: Path, parts: Iterable[Buffer], *, staging: Path, mode: int) -> int:
    partial = temporary_name(staging, "partial")
    make_dir(path.parent)
    try:
        with translated(path):
            fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                size_bytes = write_all(fd, parts, path)
                step("chmod", partial)
                os.fchmod(fd, mode)
                step("fsync", partial)
                os.fsync(fd)
            finally:
                os.close(fd)
            step("rename", path)
            os.rename(partial, path)
    except BaseException:
        _discard(partial)
        raise
    sync_dir(path.parent)
    return size_bytes


def remove(path: Path) -> None:
    """Remove ``path`` for good; one that is gone already is no failure."""
    with translated(path):
        step("unlink", path)
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
    sync_dir(path.parent)


def _discard(partial: Path) -> None:
    try:
        os.unlink(partial)
    except OSError:
        pass
