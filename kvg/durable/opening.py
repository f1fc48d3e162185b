"""Opening what has to be a plain file, and looking at where one is to be written."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Final

from kvg.durable.steps import translated
from kvg.errors import Corrupt, KvgError, NotFound, UsageError

if TYPE_CHECKING:
    from pathlib import Path

_STORE_MARKS: Final = (b"kvg-store", b"kvg-remote")


class LinkFound(Corrupt):
    """A link lies where a folder or a plain file should, at ``path``."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(f"{path}: a link", hint="what it leads to belongs in its place")
        self.path = path


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
