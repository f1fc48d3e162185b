"""Where things lie in a store, how one is made, and how one is known for a store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from kvg import durable
from kvg.errors import Corrupt, Incompatible
from kvg.locking import Lock
from kvg.store.config import Config

if TYPE_CHECKING:
    from kvg.trust import Keyring

FOLDER = ".kvg"
FORMAT_FILE = "format"
FORMAT = b"kvg-store 1\n"
FORMAT_MARK = b"kvg-store "
CONFIG_FILE = "config.toml"
LOST_FOUND = "lost-found"
"""The folder for what ``fsck --repair`` takes out of the way; nothing is ever read from it."""

FORGOTTEN = "forgotten"
"""The folder that says of which forgotten artifacts all was removed: a file for each."""

RESERVE = "reserve"
"""The folder that holds room back: ``kvg.store.reserve``."""

SEARCH = "search"
"""The folder for indexes of the text of contexts: a cache, which may go at any time."""

QUARANTINE = "quarantine"
"""The folder in ``tmp`` for what was received and is not yet part of the store."""

EXCHANGE_LOCK = "peers/lock"
"""The file that whoever fetches or pushes holds flocked."""

PUBLISHED = "logs"
"""The folder of a store that is a remote, too, for the logs of those who push to it."""

REMOTES = "remote"
"""The table of ``config.toml`` with the remotes, by name."""

SHARED_KEY = "store.shared"
GROUP = "group"
"""The key of ``config.toml`` that says with whom the store's files are shared; its one value."""

LOG_KEY = "store.log"
"""The key of ``config.toml`` that pins the log: its signed-note verifier."""


OWN = ("objects", "log", "peers", "tmp", "index.lmdb", RESERVE)
"""The folders of a store. A link in place of one would lead writers and gc to files of others."""


def check_no_link(folder: str) -> None:
    """Raise ``Corrupt`` when ``folder`` is a link: a store's own folders lie in the store."""
    if os.path.islink(folder):
        raise Corrupt(
            f"{folder}: a link, not a folder of the store",
            hint="put the folder itself there; the store as a whole may lie behind a link",
        )


def make(root: Path, keyring: Keyring, *, shared: bool = False) -> None:
    """Make what a store has; the format line comes last, so that half a store is none.

    ``shared``: the folder's group may read and write all of it.
    """
    from kvg.log.log import Log
    from kvg.signing.note import encode_verifier, parse_verifier
    from kvg.store.reserve import Reserve

    if shared:
        durable.share(root)
        durable.make_dir(root)
        _give(root, _group_folder(root))
    staging = root / "tmp"
    for folder in (root, root / "objects", root / "peers", staging):
        durable.make_dir(folder)
    lock = Lock(root / "lock")
    with lock.exclusive():
        if has_format(root):
            return
        config = Config(root / CONFIG_FILE, staging=staging, lock=lock)
        line = config.text(LOG_KEY)
        origin = parse_verifier(line, what=LOG_KEY)[0] if line else f"kvg-{os.urandom(16).hex()}"
        key = keyring.new_log_key(origin)
        config.change(
            {
                LOG_KEY: encode_verifier(origin, key.public),
                SHARED_KEY: GROUP if shared else config.text(SHARED_KEY),
            }
        )
        if not (root / "log" / "checkpoint").exists():
            Log.create(root / "log", origin=origin, key=key, staging=staging)
        Reserve(root).fill()
        durable.replace(root / FORMAT_FILE, [FORMAT], staging=staging)


def share(root: Path, config: Config) -> None:
    """Let the folder's group read and write a store that is there already, from now on and all of
    it."""
    durable.share(root)
    folder = _group_folder(root)
    _give(root, folder)
    if config.get(SHARED_KEY) != GROUP:
        config.set(SHARED_KEY, GROUP)
    for parent, _, names in durable.walk(root):
        _give(Path(parent), folder)
        for name in names:
            if not os.path.islink(os.path.join(parent, name)):
                _give(Path(parent, name), folder)


def _group_folder(root: Path) -> Path:
    """The folder whose group is that of the store ``root``, when it is shared."""
    return root.parent if root.name == FOLDER else root


def _give(path: Path, folder: Path) -> None:
    durable.give_to_group(path, folder)
    durable.open_to_group(path)  # after it: a change of group may take the mark that hands it down


def check_not_bereft(root: Path) -> None:
    """Raise ``Corrupt`` when ``root`` is a store of which nothing but the format line is missing.

    A store that was never finished has no log, and is none.
    """
    path = root / FORMAT_FILE
    is_store = (root / "log" / "checkpoint").is_file() and (root / "objects").is_dir()
    if is_store and not os.path.lexists(path):
        raise Corrupt(f"{path}: missing", hint=f"write the line {FORMAT.decode().strip()!r} in it")


def has_format(root: Path) -> bool:
    """Whether ``root`` is a store that this kvg reads. Raises ``Incompatible`` for a newer one."""
    try:
        with open(root / FORMAT_FILE, "rb", opener=durable.plain) as file:
            found = file.read(64)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        durable.raise_translated(error, root / FORMAT_FILE)
    if found == FORMAT:
        for name in OWN:
            check_no_link(f"{root}{os.sep}{name}")
        return True
    number = found.removeprefix(FORMAT_MARK).removesuffix(b"\n")
    if found == FORMAT_MARK + number + b"\n" and number.isdigit() and not number.startswith(b"0"):
        version = found.decode("ascii").strip()
        raise Incompatible(f"{root}: {version}, this kvg reads kvg-store 1", hint="update kvg")
    if root.name == FOLDER or found.startswith(FORMAT_MARK):
        raise Corrupt(
            f"{root / FORMAT_FILE}: not the format line of a store: {found[:32]!r}",
            hint=f"the line of this kvg is {FORMAT.decode().strip()!r}, and its end; put it back",
        )
    return False
