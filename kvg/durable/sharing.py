"""Folders that are shared with a group: what is made in them is the group's, too."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kvg.durable.steps import step, translated
from kvg.errors import KvgError

if TYPE_CHECKING:
    from pathlib import Path

_shared: set[str] = set()


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
