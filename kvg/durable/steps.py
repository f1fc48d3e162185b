"""Each step that changes files, announced before it happens, and what its failure means."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NoReturn

from kvg.errors import KvgError, NoSpace, NotFound, Unreadable, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Hook = Callable[[str, str], int | None]
"""Called with the step's name (write, fsync, rename, mkdir, unlink, chmod, commit) and the path.

What it gives back for a write is the most bytes that the system may take at once.
"""

NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
_SHOWN: Final = 80

_hook: Hook | None = None


def set_hook(hook: Hook | None) -> None:
    """Install the test hook that sees every step before it happens, or remove it."""
    global _hook
    _hook = hook


def step(name: str, path: Path | str) -> int | None:
    """Announce one step to the hook; returns what the hook says, None without one."""
    return None if _hook is None else _hook(name, os.fspath(path))


@contextmanager
def translated(path: Path | str) -> Iterator[None]:
    """Turn an ``OSError`` inside into one kvg error that names ``path``."""
    try:
        yield
    except OSError as error:
        raise_translated(error, path)


def raise_translated(error: OSError, path: Path | str) -> NoReturn:
    """Raise the kvg error that says what ``error`` means for ``path``."""
    if error.errno in NO_ROOM:
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
