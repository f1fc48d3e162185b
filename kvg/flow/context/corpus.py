"""The files of a corpus, in order, as text with the names that citations give them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from kvg import durable
from kvg.errors import NotFound, UsageError
from kvg.flow.sources import MAX_SOURCE_BYTES, parse_text
from kvg.frozen import frozen

if TYPE_CHECKING:
    from kvg.flow.settings import Settings


@frozen
class File:
    """One file: ``path`` as citations give it, with ``/`` between its parts."""

    path: str
    text: str


def read_corpus(settings: Settings, paths: Sequence[Path]) -> tuple[File, ...]:
    """The text files that ``paths`` name: files as they stand, folders by name, hidden ones not.

    What is no UTF-8 text in a folder is passed over with a notice; links are not followed there.
    Raises ``NotFound``, and ``UsageError`` for a named file that is no text, for two files of one
    name, and when there is no text at all.
    """
    found: dict[str, File] = {}
    for path in paths:
        for file in _files(settings, path):
            if file.path in found:
                raise UsageError(f"{file.path}: there twice", hint="give each file once")
            if file.text:
                found[file.path] = file
    if not found:
        raise UsageError(f"{', '.join(map(str, paths))}: no text", hint="give a folder or files")
    return tuple(found.values())


def _files(settings: Settings, path: Path) -> Iterator[File]:
    full = settings.cwd / path
    name = _name(path)
    if not full.is_dir():
        with durable.translated(path), open(full, "rb") as file:
            data = file.read(MAX_SOURCE_BYTES + 1)
        if len(data) > MAX_SOURCE_BYTES:
            raise UsageError(f"{path}: larger than {MAX_SOURCE_BYTES} bytes")
        yield File(str(name), parse_text(data, what=str(path)))
        return
    passed = 0
    for inner in _walk(full):
        text = _text(inner)
        if text is None:
            passed += 1
        else:
            yield File(str(name / inner.relative_to(full).as_posix()), text)
    if passed:
        settings.report.notice(f"{path}: {passed} files are no UTF-8 text and were passed over")


def _name(path: Path) -> PurePosixPath:
    """What citations call ``path``: as it was typed, from its own name on where that leads out."""
    if path.is_absolute() or ".." in path.parts:
        return PurePosixPath(path.absolute().resolve().name)
    return PurePosixPath(path.as_posix())


def _walk(folder: Path) -> Iterator[Path]:
    """The regular files below ``folder``, by name; what is hidden and links are left out."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise NotFound(f"{folder}: cannot read: {(error.strerror or '').lower()}") from None
    for entry in entries:
        if entry.name.startswith(".") or entry.is_symlink():
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path))
        elif entry.is_file(follow_symlinks=False):
            yield Path(entry.path)


def _text(path: Path) -> str | None:
    """What a person can read in the file; None where there is none."""
    with durable.translated(path), open(path, "rb") as file:
        data = file.read(MAX_SOURCE_BYTES + 1)
    if len(data) > MAX_SOURCE_BYTES or b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None
