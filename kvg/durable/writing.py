"""Files that get their name when they are whole, and room that is taken ahead of need."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

from kvg.digest import Buffer
from kvg.durable.folders import Held, make_dir, sync_dir, sync_held
from kvg.durable.opening import plain
from kvg.durable.sharing import mode_of, open_to_group
from kvg.durable.steps import NO_ROOM, raise_translated, step, translated

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

PARTIAL: Final = "partial"
"""What the names of half-written files begin with."""

_counter = 0


def write_new(
    path: Path,
    parts: Iterable[Buffer],
    *,
    staging: Path,
    mode: int = 0o444,
    is_named_for_good: bool = True,
    is_synced: bool = True,
) -> int:
    """Write a file that nobody has yet: staged in ``staging``, synced, renamed to ``path``.

    The two must be on one file system. An existing ``path`` is replaced by the same bytes (callers
    name files by digest). Returns the bytes written; nothing is left behind on failure.
    ``is_named_for_good``: False where a loss of power may take the name again, though no bytes of
    what has it. ``is_synced``: False where it may take bytes too, until ``sync_files``.
    """
    return _publish(
        path,
        parts,
        staging=staging,
        mode=mode,
        is_named_for_good=is_named_for_good,
        is_synced=is_synced,
    )


def replace(
    path: Path,
    parts: Iterable[Buffer],
    *,
    staging: Path,
    mode: int = 0o644,
    held: tuple[Held, Held] | None = None,
    under: AbstractContextManager[object] | None = None,
) -> int:
    """Replace ``path`` by new bytes in one step: readers see the old file or the new, whole.

    ``held``: see ``stage``. ``under``: see ``Staged.publish``.
    """
    return _publish(path, parts, staging=staging, mode=mode, held=held, under=under)


def _publish(
    path: Path,
    parts: Iterable[Buffer],
    *,
    staging: Path,
    mode: int,
    is_named_for_good: bool = True,
    is_synced: bool = True,
    held: tuple[Held, Held] | None = None,
    under: AbstractContextManager[object] | None = None,
) -> int:
    staged = stage(
        path, parts, staging=staging, mode=mode, is_named_for_good=is_named_for_good, held=held
    )
    staged.publish(is_named_for_good=is_named_for_good, is_synced=is_synced, under=under)
    return staged.size_bytes


class Staged:
    """A file that is written whole and has no name yet, open and flocked: see ``claim``."""

    def __init__(
        self,
        path: Path,
        partial: Path,
        fd: int,
        size_bytes: int,
        held: tuple[Held, Held] | None = None,
    ) -> None:
        """``held``: the folders of ``path`` and of ``partial``; ``publish`` lets go of them."""
        self._held = held
        self._path = path
        self._partial = partial
        self._fd = fd
        self.size_bytes = size_bytes

    def publish(
        self,
        *,
        is_named_for_good: bool = True,
        is_synced: bool = True,
        under: AbstractContextManager[object] | None = None,
    ) -> None:
        """Sync it and give it its name; see ``write_new``. Nothing is left behind on failure.

        ``under`` is entered for the time of giving the name alone: it waits for no disk.
        """
        with ExitStack() as stack:
            for held in self._held or ():
                stack.enter_context(held)
            with _discarding(self._partial, self._held):
                try:
                    with translated(self._path):
                        if is_synced:
                            step("fsync", self._partial)
                            os.fsync(self._fd)
                        with under or nullcontext():
                            step("rename", self._path)
                            self._rename()
                finally:
                    os.close(self._fd)
            if is_named_for_good:
                if self._held is None:
                    sync_dir(self._path.parent)
                else:
                    sync_held(self._held[0])

    def _rename(self) -> None:
        if self._held is None:
            os.rename(self._partial, self._path)
            return
        folder, staging = self._held
        os.rename(self._partial.name, self._path.name, src_dir_fd=staging.fd, dst_dir_fd=folder.fd)


def stage(
    path: Path,
    parts: Iterable[Buffer],
    *,
    staging: Path,
    mode: int = 0o444,
    is_named_for_good: bool = True,
    held: tuple[Held, Held] | None = None,
) -> Staged:
    """The first half of ``write_new``: all of it but the waiting for the disk, and the name.

    ``held``: the folders of ``path`` and ``staging``, to go by them and not by their names. What
    comes back lets go of them.
    """
    if held is None:
        make_dir(path.parent, is_named_for_good=is_named_for_good)
    try:
        fd, partial = claim(staging, PARTIAL, at=None if held is None else held[1])
    except OSError as error:
        raise_translated(error, path if error.errno in NO_ROOM else staging)
    with _discarding(partial, held):
        try:
            with translated(path):
                size_bytes = write_all(fd, parts, path)
                step("chmod", partial)
                os.fchmod(fd, mode_of(path, mode))
        except BaseException:
            os.close(fd)
            raise
    return Staged(path, partial, fd, size_bytes, held)


def claim(
    folder: Path, label: str, *, mode: int = 0o600, at: Held | None = None
) -> tuple[int, Path]:
    """A new file in ``folder``, open and flocked: as long as it is, its writer is at work.

    Made again when a clean-up took it before it was flocked. A ``folder`` that is gone is made
    again in its parent; one that is held, ``at``, is gone by itself. Raises ``OSError``,
    ``KvgError`` when that can't be.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    while True:
        path = temporary_name(folder, label)
        step("create", path)
        if at is None:
            fd = open_in_folder(path, flags, mode)
        else:
            fd = os.open(path.name, flags | os.O_NOFOLLOW, mode, dir_fd=at.fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if os.fstat(fd).st_nlink:
                open_to_group(path)
                return fd, path
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def open_in_folder(path: Path, flags: int, mode: int) -> int:
    """As ``plain``; the folder of ``path`` is made again if it went and its parent is there."""
    try:
        return plain(os.fspath(path), flags, mode)
    except FileNotFoundError:
        folder = path.parent
        if folder.is_dir() or not folder.parent.is_dir():
            raise
        make_dir(folder)
        return plain(os.fspath(path), flags, mode)


def temporary_name(folder: Path, label: str) -> Path:
    """A name in ``folder`` that no other live process uses."""
    global _counter
    _counter += 1
    return folder / f"{label}.{os.getpid()}.{_counter}.{os.urandom(4).hex()}"


def write_all(fd: int, parts: Iterable[Buffer], path: Path) -> int:
    """Write every byte of ``parts`` to ``fd``; returns the bytes written."""
    size_bytes = 0
    for part in parts:
        view = memoryview(part).cast("B")
        while len(view):
            most = step("write", path)
            n = os.write(fd, view if most is None else view[:most])
            view = view[n:]
            size_bytes += n
    return size_bytes


def hold_room(path: Path, size_bytes: int) -> None:
    """Let the file ``path`` grow to ``size_bytes`` of what means nothing and can't be compressed.

    Not synced: a loss of power, as a failure, may leave it shorter, or without a name. Raises
    ``NoSpace``.
    """
    make_dir(path.parent, is_named_for_good=False)
    with translated(path):
        step("create", path)
        fd = plain(os.fspath(path), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            open_to_group(path)
            missing = size_bytes - os.lseek(fd, 0, os.SEEK_END)
            write_all(fd, [os.urandom(max(0, missing))], path)
        finally:
            os.close(fd)


def make_zeros(path: Path, size_bytes: int) -> None:
    """Make the file ``path``, unless it is there, of zeros that are on disk, none of it a hole.

    Whoever maps such a file is not killed for want of room where it writes. It appears in one step.
    On a file system without files that have no name yet, nothing is made. Raises ``NoSpace``.
    """
    unnamed = getattr(os, "O_TMPFILE", 0)
    if not unnamed or path.exists():
        return
    with translated(path):
        step("create", path)
        try:
            fd = os.open(path.parent, unnamed | os.O_RDWR | os.O_CLOEXEC, mode_of(path, 0o600))
        except OSError as error:
            if error.errno in NO_ROOM:
                raise
            return
        try:
            write_all(fd, [bytes(size_bytes)], path)
            os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=fd)  # with a descriptor it is followed
        except (FileNotFoundError, FileExistsError, PermissionError):
            return
        finally:
            os.close(fd)


@contextmanager
def _discarding(partial: Path, held: tuple[Held, Held] | None = None) -> Iterator[None]:
    """``partial`` goes where the block fails."""
    try:
        yield
    except BaseException:
        try:
            if held is None:
                os.unlink(partial)
            else:
                os.unlink(partial.name, dir_fd=held[1].fd)
        except OSError:
            pass
        raise
