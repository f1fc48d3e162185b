"""``kvg __serve``: a remote in a folder, served to a kvg at the other end of two streams."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from kvg.errors import UsageError
from kvg.flow.settings import counted_in
from kvg.remote.address import open_folder
from kvg.remote.serving import Server

if TYPE_CHECKING:
    from kvg.flow.settings import Settings

SERVED_WAIT_S: Final = 60.0
"""How long another who moves a pointer there is waited for: who asks sees nothing of it."""


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
    files = open_folder(
        folder,
        keeper=partial(counted_in, settings),
        lock_wait=SERVED_WAIT_S if settings.lock_wait is None else settings.lock_wait,
        report=settings.report,
    )
    try:
        Server(files, source, sink, is_read_only=is_read_only).run()
    finally:
        files.close()
