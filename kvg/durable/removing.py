"""Removing and renaming, for good."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kvg.durable.folders import Held, make_dir, sync_dir, sync_dirs, sync_held
from kvg.durable.opening import plain
from kvg.durable.steps import step, translated
from kvg.errors import Corrupt

if TYPE_CHECKING:
    from pathlib import Path


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
        sync_held(held)


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
