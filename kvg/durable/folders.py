"""Folders: made, held open, and their names made durable."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kvg.durable.opening import LinkFound, plain
from kvg.durable.sharing import open_to_group
from kvg.durable.steps import raise_translated, step, translated
from kvg.parallel import in_order

if TYPE_CHECKING:
    from pathlib import Path

SYNCERS: Final = 8
"""How many files, or folders where there are many, are synced at once."""

MANY_FOLDERS: Final = 32


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


def names_in(folder: Path | str) -> list[str]:
    """The names in ``folder``, ascending; none where no folder is there.

    Raises ``KvgError`` where it can't be listed: what is not seen is not gone.
    """
    with translated(folder):
        try:
            return sorted(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return []


def walk(root: Path | str) -> Iterator[tuple[str, list[str], list[str]]]:
    """As ``os.walk`` without following links; a folder that is not there, or goes meanwhile, is
    passed over. Raises ``KvgError`` where one can't be listed."""

    def on_error(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise_translated(error, error.filename or root)

    return os.walk(os.fspath(root), onerror=on_error)


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
        sync_held(held)


def sync_held(held: Held) -> None:
    """Make the names in a folder that is held durable."""
    with translated(held.path):
        step("fsync", held.path)
        os.fsync(held.fd)
