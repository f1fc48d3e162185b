"""``kvg __serve``: a remote in a folder, served to a kvg at the other end of two streams."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from kvg.errors import UsageError
from kvg.flow.settings import counted_in
from kvg.remote.address import open_folder
from kvg.remote.serving import Server

if TYPE_CHECKING:
    from kvg.flow.settings import Settings


def serve(
    settings: Settings, path: Path, source: BinaryIO, sink: BinaryIO, *, is_read_only: bool
) -> None:
    """Serve the folder ``path`` until ``source`` ends; ``~`` is the user's home.

    Raises ``Corrupt`` on what is no request.
    """
    try:
        folder = settings.cwd / path.expanduser()
    except RuntimeError:
        raise UsageError(f"{path}: no such user's home") from None
    files = open_folder(folder, keeper=partial(counted_in, settings))
    try:
        Server(files, source, sink, is_read_only=is_read_only).run()
    finally:
        files.close()
