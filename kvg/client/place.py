"""Where sessions lie: a private runtime folder with a socket, a lock and a token for each name."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from kvg.errors import NotFound, Untrusted, UsageError
from kvg.frozen import frozen

FOLDER = "kvg"
MOST_SOCKET_BYTES = 100
"""A socket's path must fit 108 bytes; some is left for those who rewrite it."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}", re.ASCII)


@frozen
class Place:
    """The files of one session. Whoever holds ``lock`` flocked is the session."""

    name: str
    folder: Path

    @property
    def socket(self) -> Path:
        return self.folder / f"{self.name}.sock"

    @property
    def lock(self) -> Path:
        return self.folder / f"{self.name}.lock"

    @property
    def token(self) -> Path:
        return self.folder / f"{self.name}.token"


def check_name(name: str) -> None:
    """Raise ``UsageError`` unless a session may be called ``name``."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"session {name[:40]!r}: not a name",
            hint="lower-case letters, digits, - and _, at most 32",
        )


def folder_for(runtime: Path | None) -> Path:
    """The folder of this user's sessions: in ``runtime`` (XDG_RUNTIME_DIR) if that is this user's
    own and its path is short enough for a socket, else in /tmp. Nothing is made."""
    fallback = Path("/tmp") / f"kvg-{os.geteuid()}"
    if runtime is None or not runtime.is_absolute() or not _is_own(runtime):
        return fallback
    folder = runtime / FOLDER
    longest = len(os.fsencode(folder)) + len("/") + 32 + len(".sock")
    if longest <= MOST_SOCKET_BYTES:
        return folder
    found = os.stat(runtime)
    return fallback / f"{found.st_dev:x}-{found.st_ino:x}"


def find_place(folder: Path, name: str) -> Place:
    """The place of the session ``name``. Raises ``NotFound``, ``Untrusted``, ``UsageError``."""
    check_name(name)
    place = Place(name, folder)
    if not os.path.lexists(place.socket):
        raise not_running(name)
    check_private(folder)
    return place


def not_running(name: str) -> NotFound:
    return NotFound(f"session {name}: not running", hint=f"kvg session start {name}")


def make_folder(folder: Path) -> None:
    """Make ``folder``, for this user alone. Raises ``Untrusted`` when it is there and is not."""
    from kvg import durable

    for path in (folder.parent, folder) if folder.parent.name.startswith("kvg-") else (folder,):
        durable.make_dir(path, mode=0o700)
        check_private(path)


def check_private(folder: Path) -> None:
    """Raise ``Untrusted`` unless ``folder`` is a folder that is this user's alone."""
    try:
        found = os.lstat(folder)
    except OSError:
        raise NotFound(f"{folder}: no such folder", hint="kvg session start NAME") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise Untrusted(
            f"{folder}: not a folder of yours: someone else may be listening there",
            hint="set XDG_RUNTIME_DIR to a folder of yours",
        )
    if found.st_mode & 0o077:
        raise Untrusted(f"{folder}: others may enter it", hint=f"chmod 700 {folder}")


def _is_own(folder: Path) -> bool:
    try:
        found = os.stat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
