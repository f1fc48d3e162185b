"""The files of a corpus, in order, as text with the names that citations give them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from kvg import durable
from kvg.errors import Corrupt, NotFound, UsageError
from kvg.flow.settings import check_file_name
from kvg.flow.sources import MAX_SOURCE_BYTES, parse_text
from kvg.frozen import frozen

if TYPE_CHECKING:
    from kvg.flow.settings import Settings


NAMED = 3
"""Files that a notice names."""


@frozen
class File:
    """One file: ``path`` as citations give it, with ``/`` between its parts."""

    path: str
    text: str


def read_corpus(settings: Settings, paths: Sequence[Path]) -> tuple[File, ...]:
    """The text files that ``paths`` name: files as they stand, folders by name, hidden ones not.

    What is no UTF-8 text in a folder, or not by its name, is passed over with a notice, what goes
    while it is read without one; links are not followed there. Raises ``NotFound``, and
    ``UsageError`` for a named file that is no text, for two files of one name, and when there is no
    text at all.
    """
    found: dict[str, File] = {}
    for path in paths:
        for file in _files(settings, path):
            if file.path in found:
                raise UsageError(
                    f"{file.path}: two files have this name, or one is given twice",
                    hint="give each file once, or a folder that holds both",
                )
            if file.text:
                found[file.path] = file
    if not found:
        raise UsageError(f"{', '.join(map(str, paths))}: no text", hint="give a folder or files")
    return tuple(found.values())


def _files(settings: Settings, path: Path) -> Iterator[File]:
    full = settings.cwd / path
    name = _name(path)
    check_file_name(str(name))
    if not full.is_dir():
        try:
            data = _bytes(full)
        except Corrupt:
            raise UsageError(
                f"{path}: not a plain file", hint="give a file or a folder; write its text to one"
            ) from None
        if len(data) > MAX_SOURCE_BYTES:
            raise UsageError(f"{path}: larger than {MAX_SOURCE_BYTES} bytes")
        yield File(str(name), parse_text(data, what=str(path)))
        return
    passed: list[str] = []
    for inner in _walk(full):
        own = inner.relative_to(full).as_posix()
        try:
            text = _text(inner)
        except NotFound:  # it went since its folder was read
            continue
        if text is None or not _is_utf8(own):
            passed.append(own)
        else:
            yield File(str(name / own), text)
    if passed:
        more = ", …" if len(passed) > NAMED else ""
        settings.report.notice(
            f"{path}: {len(passed)} files that are no UTF-8 text of at most 1 GiB, or not by name, "
            f"were passed over: {', '.join(passed[:NAMED])}{more}"
        )


def _name(path: Path) -> PurePosixPath:
    """What citations call ``path``: as it was typed, from its own name on where that leads out."""
    if path.is_absolute() or ".." in path.parts:
        return PurePosixPath(path.absolute().resolve().name)
    return PurePosixPath(path.as_posix())


def _walk(folder: Path) -> Iterator[Path]:
    """The regular files below ``folder``, by name; what is hidden and links are left out."""
    left = [iter(_entries(folder))]
    while left:
        entry = next(left[-1], None)
        if entry is None:
            left.pop()
        elif entry.name.startswith(".") or entry.is_symlink():
            continue
        elif entry.is_dir(follow_symlinks=False):
            left.append(iter(_entries(Path(entry.path), may_go=True)))
        elif entry.is_file(follow_symlinks=False):
            yield Path(entry.path)


def _entries(folder: Path, *, may_go: bool = False) -> list[os.DirEntry[str]]:
    """What ``folder`` holds, by name; nothing where it went meanwhile and ``may_go``."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        if may_go and isinstance(error, FileNotFoundError):
            return []
        raise NotFound(f"{folder}: cannot read: {(error.strerror or '').lower()}") from None


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _bytes(path: Path) -> bytes:
    """What a plain file holds, one byte past the most at most; ``Corrupt`` for what is none."""
    with durable.translated(path), open(path, "rb", opener=durable.plain) as file:
        return file.read(MAX_SOURCE_BYTES + 1)


def _text(path: Path) -> str | None:
    """What a person can read in the file; None where there is none."""
    try:
        data = _bytes(path)
    except Corrupt:  # what was a file when its folder was read
        return None
    if len(data) > MAX_SOURCE_BYTES or b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None
