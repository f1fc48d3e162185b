"""Whether a model's files are still those that were read before.

A model is hashed first and loaded a little later; what is loaded has to be what was hashed. No file
is held still by either, so that which file it is, and when it last changed, is noted before the
first is read and compared after the last: the system's time of the last change can't be set back,
and a file that takes the place of another is another.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

from kvg import durable

Stamp: TypeAlias = "tuple[tuple[str, tuple[int, ...]], ...]"
"""Of each file its path, and (device, inode, size, modified, changed), times in nanoseconds."""

SUFFIXES: Final = (".json", ".safetensors", ".jinja", ".model", ".txt")
"""Of what weights, configurations, tokenizers, templates and adapters are kept in."""


def stamp_of(folder: Path, adapter: Path | None = None) -> Stamp:
    """What tells whether a file of the model in ``folder``, or of its adapter, changed."""
    return tuple(_stamps(folder)) + (() if adapter is None else tuple(_stamps(adapter)))


def _stamps(folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    for name in durable.names_in(folder):
        if not name.endswith(SUFFIXES):
            continue
        path = os.path.join(folder, name)
        try:
            found = os.stat(path)
        except FileNotFoundError:
            yield path, ()  # a link to nothing
            continue
        times = (found.st_mtime_ns, found.st_ctime_ns)
        yield path, (found.st_dev, found.st_ino, found.st_size, *times)
