"""Durable changes to files: the only place where kvg writes, renames or removes anything.

Every step passes through ``step``, so that a test can stop, fail or shorten each one in turn.
Guarantee: after ``write_new`` or ``replace`` returns, the file is whole under its name on disk,
also after a loss of power; before it returns, the name holds what it held before.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterable
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, NoReturn

from kvg.digest import Buffer
from kvg.errors import Corrupt, KvgError, NoSpace, NotFound, Unreadable, UsageError
from kvg.parallel import in_order

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

Hook = Callable[[str, str], int | None]
"""Called with the step's name (write, fsync, rename, mkdir, unlink, chmod, commit) and the path.

What it gives back for a write is the most bytes that the system may take at once.
"""

SYNCERS = 8
"""How many files, or folders where there are many, are synced at once."""

MANY_FOLDERS = 32

PARTIAL = "partial"
"""What the names of half-written files begin with."""

_STORE_MARKS = (b"kvg-store", b"kvg-remote")
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_SHOWN = 80

_hook: Hook | None = None
_counter = 0
_shared: set[str] = set()


def set_hook(hook: Hook | None) -> None:
    """Install the test hook that sees every step before it happens, or remove it."""
    global _hook
    _hook = hook


def step(name: str, path: Path | str) -> int | None:
    """Announce one step to the hook; returns what the hook says, None without one."""
    return None if _hook is None else _hook(name, os.fspath(path))


def share(root: Path) -> None:
    """From here on this process lets the group read, and write, whatever it makes in ``root``."""
    _shared.add(os.path.abspath(root))


def is_shared(path: Path) -> bool:
    """Whether ``path`` lies in a folder that is shared with the group."""
    if not _shared:
        return False
    text = os.path.abspath(path)
    return any(text == root or text.startswith(root + os.sep) for root in _shared)


def mode_of(path: Path, mode: int) -> int:
    """``mode``, with what its owner may do allowed to the group too where ``path`` is shared."""
    return mode | (mode & 0o700) >> 3 if is_shared(path) else mode


def open_to_group(path: Path) -> None:
    """Give the group what the owner has, where ``path`` is shared and this user owns it."""
    if not is_shared(path):
        return
    with translated(path):
        found = os.stat(path, follow_symlinks=False)
        wanted = found.st_mode & 0o7777
        wanted |= (wanted & 0o700) >> 3 | (0o2000 if path.is_dir() else 0)
        if wanted != found.st_mode & 0o7777 and found.st_uid == os.geteuid():
            step("chmod", path)
            os.chmod(path, wanted)


def give_to_group(path: Path, folder: Path) -> None:
    """Give ``path`` to the group of ``folder``, where this user owns it. Raises ``KvgError``."""
    with translated(path):
        found, group = os.stat(path, follow_symlinks=False), os.stat(folder).st_gid
        if found.st_gid == group or found.st_uid != os.geteuid():
            return
        step("chown", path)
        try:
            os.chown(path, -1, group)
        except PermissionError:
            raise KvgError(
                f"{path}: can't be given to group {group}, that of {folder}",
                hint=f"only a member of it can do that; or chgrp {folder} to a group of yours",
            ) from None


@contextmanager
def translated(path: Path | str) -> Iterator[None]:
    """Turn an ``OSError`` inside into one kvg error that names ``path``."""
    try:
        yield
    except OSError as error:
        raise_translated(error, path)


def raise_translated(error: OSError, path: Path | str) -> NoReturn:
    """Raise the kvg error that says what ``error`` means for ``path``."""
    if error.errno in _NO_ROOM:
        raise NoSpace(f"{path}: no space left", hint="free some space, then run it again") from None
    if isinstance(error, FileNotFoundError):
        raise NotFound(f"{path}: no such file") from None
    if isinstance(error, PermissionError):
        raise Unreadable(f"{path}: permission denied", hint=f"check who owns {path}") from None
    if error.errno == errno.ENAMETOOLONG:
        shown = path if len(str(path)) < _SHOWN else f"{str(path)[:_SHOWN]}…"
        raise UsageError(f"{shown}: too long for a name", hint="give a shorter one") from None
    if error.errno == errno.EROFS:
        raise KvgError(
            f"{path}: read-only file system",
            hint="mount it for writing, or work on a copy in another place",
        ) from None
    raise Unreadable(f"{path}: {error.strerror or error}") from None


def is_file(path: Path) -> bool:
    """Whether a file is there, or a link to one; what is too long for a name is none."""
    try:
        return path.is_file()
    except OSError:
        return False


def check_target(path: Path, *, option: str) -> None:
    """Raise unless a file can be written at ``path``, which ``option`` of a command line names.

    Asked before work begins: ``UsageError`` for a folder, a link, a device and whatever else is no
    plain file, in whose place a file would be put, for ``-``, which elsewhere stands for standard
    output, and for a path inside a store, ``NotFound``
    without the folder that it would lie in, ``KvgError`` where that cannot be written
    to.
    """
    if path.name == "-":
        raise UsageError(
            f"{option} -: is no file, and standard output is taken",
            hint=f"{option} takes the name of a file",
        )
    with translated(path):
        if path.is_dir():
            raise UsageError(f"{path}: is a folder", hint=f"{option} takes the name of a file")
        if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
            kind = "a link" if path.is_symlink() else "not a plain file"
            raise UsageError(
                f"{path}: {kind}, and would be replaced", hint=f"give {option} another path"
            )
        if not path.parent.is_dir():
            raise NotFound(
                f"{path.parent}: no such folder", hint=f"give {option} a path in one that exists"
            )
        store = store_above(path.parent)
        if store is not None:
            raise UsageError(
                f"{path}: lies inside the store {store}",
                hint=f"give {option} a path outside of it: nothing but kvg writes there",
            )
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise KvgError(
                f"{path.parent}: cannot be written to", hint=f"give {option} another path"
            )


def plain(
    path: str, flags: int = os.O_RDONLY, mode: int = 0o666, *, dir_fd: int | None = None
) -> int:
    """Open a plain file: an opener for ``open`` that never waits for a pipe's other end.

    Raises ``Corrupt`` for a pipe, a socket, a device or a folder in its place, ``LinkFound`` for a
    link that ``flags`` say not to follow, else ``OSError``.
    """
    try:
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, mode, dir_fd=dir_fd)
    except OSError as error:
        if error.errno == errno.ELOOP and flags & os.O_NOFOLLOW:
            raise LinkFound(path) from None
        if error.errno not in (errno.ENXIO, errno.ENODEV, errno.EISDIR):
            raise
        raise _not_plain(path) from None
    try:
        check_plain(fd, path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def check_plain(fd: int, path: Path | str) -> None:
    """Raise ``Corrupt`` unless the open file ``fd``, at ``path``, is a plain one."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise _not_plain(path)


def _not_plain(path: Path | str) -> Corrupt:
    return Corrupt(f"{path}: not a plain file", hint=f"move {path} away; kvg fsck says what else")


def store_above(folder: Path) -> Path | None:
    """The store or remote that ``folder``, links followed, is or lies in; None when in none."""
    resolved = folder.resolve()
    for parent in (resolved, *resolved.parents):
        if parent.name == ".kvg" or _is_store(parent):
            return parent
    return None


def _is_store(folder: Path) -> bool:
    try:
        with open(folder / "format", "rb", opener=plain) as file:
            return file.read(max(map(len, _STORE_MARKS))).startswith(_STORE_MARKS)
    except (OSError, Corrupt):
        return False


def make_dir(path: Path, *, mode: int = 0o777, is_named_for_good: bool = True) -> None:
    """Make ``path`` and its parents, each durable in its parent; one that exists is left alone.

    ``is_named_for_good``: False leaves out the waits that make the names durable.
    """
    if path.is_dir():
        return
    make_dir(path.parent, mode=mode, is_named_for_good=is_named_for_good)
    with translated(path):
        step("mkdir", path)
        try:
            os.mkdir(path, mode)
        except FileExistsError:
            return
    open_to_group(path)
    if is_named_for_good:
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


def sync_dirs(folders: Iterable[Path]) -> None:
    """Make the names in many folders durable, in no order: disks take in many waits at once."""
    paths = tuple(folders)
    for _ in in_order(sync_dir, paths, threads=SYNCERS if len(paths) >= MANY_FOLDERS else 1):
        pass


def sync_files(paths: Iterable[Path]) -> None:
    """Make the bytes of many files durable, in no order: disks take in many waits at once."""
    for _ in in_order(_sync_file, tuple(paths), threads=SYNCERS):
        pass


def _sync_file(path: Path) -> None:
    with translated(path):
        step("fsync", path)
        fd = plain(os.fspath(path), os.O_RDONLY | os.O_NOFOLLOW)
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
            most = step("write", path)
            n = os.write(fd, view if most is None else view[:most])
            view = view[n:]
            size_bytes += n
    return size_bytes


def temporary_name(folder: Path, label: str) -> Path:
    """A name in ``folder`` that no other live process uses."""
    global _counter
    _counter += 1
    return folder / f"{label}.{os.getpid()}.{_counter}.{os.urandom(4).hex()}"


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


class LinkFound(Corrupt):
    """A link lies where a folder or a plain file should, at ``path``."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(f"{path}: a link", hint="what it leads to belongs in its place")
        self.path = path


class Held:
    """A folder held open: what is written by it lands in it, whatever takes its name meanwhile."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.fd = fd

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of it; again is harmless."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def hold(root: Path, inside: str, *, make: bool = True, n_named: int | None = None) -> Held:
    """Open the folder ``inside`` of ``root`` (empty: itself), through no link below ``root``.

    ``make``: with its parents where they are not there, the first ``n_named`` of them (None: all)
    named for good. Raises ``LinkFound``, ``FileNotFoundError`` where it is not there.
    """
    if make:
        make_dir(root)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    held = Held(root, os.open(root, flags))
    try:
        for depth, name in enumerate(inside.split("/") if inside else ()):
            path = held.path / name
            try:
                fd = os.open(name, flags | os.O_NOFOLLOW, dir_fd=held.fd)
            except FileNotFoundError:
                if not make:
                    raise
                _make_in(held, name, is_named_for_good=n_named is None or depth < n_named)
                fd = os.open(name, flags | os.O_NOFOLLOW, dir_fd=held.fd)
            except OSError as error:
                if os.path.islink(path):
                    raise LinkFound(path) from None
                raise_translated(error, path)
            held.close()
            held = Held(path, fd)
    except BaseException:
        held.close()
        raise
    return held


def _make_in(held: Held, name: str, *, is_named_for_good: bool) -> None:
    path = held.path / name
    with translated(path):
        step("mkdir", path)
        try:
            os.mkdir(name, 0o777, dir_fd=held.fd)
        except FileExistsError:
            return
    open_to_group(path)
    if is_named_for_good:
        _sync_held(held)


def _sync_held(held: Held) -> None:
    with translated(held.path):
        step("fsync", held.path)
        os.fsync(held.fd)


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
                    _sync_held(self._held[0])

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
        raise_translated(error, path if error.errno in _NO_ROOM else staging)
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


def remove_abandoned(path: Path, *, dry_run: bool = False, held: Held | None = None) -> int | None:
    """Remove a file made by ``claim`` if its writer has ended; returns its size, else None.

    It is held flocked while it goes, so that a writer that has just made it makes another.
    ``held``: its folder, to go by that.
    """
    try:
        if held is None:
            fd = plain(os.fspath(path), os.O_RDONLY | os.O_NOFOLLOW)
        else:
            fd = plain(path.name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=held.fd)
    except (OSError, Corrupt):
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        size_bytes = os.fstat(fd).st_size
        if not dry_run:
            remove(path, held=held)
        return size_bytes
    except BlockingIOError:
        return None
    finally:
        os.close(fd)


def remove(path: Path, *, held: Held | None = None) -> None:
    """Remove ``path`` for good; one that is gone already is no failure.

    ``held``: its folder, to go by that and not by its name.
    """
    with translated(path):
        step("unlink", path)
        try:
            if held is None:
                os.unlink(path)
            else:
                os.unlink(path.name, dir_fd=held.fd)
        except FileNotFoundError:
            return
    if held is None:
        sync_dir(path.parent)
    else:
        _sync_held(held)


def remove_all(paths: Iterable[Path]) -> None:
    """Remove many files, then make it durable, once for each folder. Needs no space."""
    folders: dict[Path, None] = {}
    for path in paths:
        with translated(path):
            step("unlink", path)
            try:
                os.unlink(path)
            except FileNotFoundError:
                continue
        folders[path.parent] = None
    sync_dirs(folders)


def remove_tree(folder: Path) -> None:
    """Remove a folder and what is in it; links are removed, never followed."""
    with translated(folder):
        for entry in list(os.scandir(folder)):
            if entry.is_dir(follow_symlinks=False):
                remove_tree(folder / entry.name)
            else:
                step("unlink", entry.path)
                os.unlink(entry.path)
        step("unlink", folder)
        os.rmdir(folder)


def remove_empty(folder: Path) -> bool:
    """Remove ``folder`` if there are no files in it nor in its folders; whether it is gone."""
    with translated(folder):
        for parent, _, files in os.walk(folder, topdown=False):
            if files:
                return False
            step("unlink", parent)
            try:
                os.rmdir(parent)
            except FileNotFoundError:
                continue
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    return False  # a link among its folders, or somebody was quicker
                raise
    return True


def move(path: Path, target: Path) -> None:
    """Rename ``path`` to ``target``, which nobody has, durably; needs no room for the bytes."""
    make_dir(target.parent)
    with translated(path):
        step("rename", path)
        os.rename(path, target)
    sync_dir(target.parent)
    sync_dir(path.parent)


def move_all(moves: Iterable[tuple[Path, Path]]) -> None:
    """Rename each path to its target, in order, then make the names durable, once a folder.

    Where the paths were is not: a loss of power may bring names there back.
    """
    made: dict[Path, None] = {}
    folders: dict[Path, None] = {}
    for path, target in moves:
        if target.parent not in folders:
            if not target.parent.is_dir():
                make_dir(target.parent, is_named_for_good=False)
                made[target.parent.parent] = None
            folders[target.parent] = None
        with translated(path):
            step("rename", path)
            os.rename(path, target)
    sync_dirs((*made, *folders))


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
            if error.errno in _NO_ROOM:
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
