"""What lies in a store's folder and is no part of one, by its name or by its kind.

One table says what a store, and a remote that is one, may hold. Names of objects are looked at by
the object folder; what a file holds, by the check of its kind.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kvg.errors import Corrupt
from kvg.remote import layout
from kvg.store.layout import LOST_FOUND
from kvg.verify.findings import Finding

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.store import Store

Tree = Mapping[str, "Tree | None"]
"""What a folder may hold: each name, as a pattern, with what is in it; None for a file."""

_HEX: Final = r"[0-9a-f]{64}"
_NAME: Final = r"[a-z0-9_-][a-z0-9._-]*"
_ANY: Final = r"(?s:.+)"
"""A name that is looked at with what it names."""

_FREE: Final[Tree] = {_ANY: None}
"""A folder whose names are told of by another check."""

_APART: Final[Tree] = {}
"""A folder that is not looked into here."""

_TILES: Final[dict[str, Tree | None]] = {r"[0-9]{3}": None, r"[0-9]{3}\.p": {r"[0-9]{1,3}": None}}
_TILES[r"x[0-9]{3}"] = _TILES

LOG: Final[Tree] = {
    "checkpoint": None,
    "verifier": None,
    "cosigned": None,
    "rekey": {r"first|[0-9]+": None},
    "tile": {r"entries|[0-9]{1,2}": _TILES},
}
TMP: Final[Tree] = {
    r"partial\..*": None,
    r"index\..*": {r"data\.mdb|lock\.mdb": None},
    "pending": {r"roots\..*": None},
    "quarantine": {r"[0-9a-f]{2}": {r"[0-9a-f]{62}": None}},
    "pushes|left-out|taken-off": {_ANY: None},
}
STORE: Final[Tree] = {
    r"format|config\.toml|trust\.json|lock|usage": None,
    "objects": _APART,
    LOST_FOUND: _APART,
    "log": {**LOG, "witnessed": {r"[0-9a-f]{32}": None}},
    "peers": {
        "lock": None,
        _NAME: {**LOG, "publisher": None, "receipts": {_ANY: None}, "seen": {_ANY: None}},
    },
    r"index\.lmdb": {r"data\.mdb|lock\.mdb": None},
    "tmp": TMP,
    "reserve": {"[0-7]": None},
    "forgotten": {rf"{_HEX}(\.wanted)?": None},
    "search": {r"[0-9a-f]{32}\.sqlite(-journal|-wal|-shm)?": None},
    layout.LOGS: {_ANY: {**LOG, "publisher": None, "held": {r"[0-9]+": None}}},
    f"{layout.REFS}|{layout.KEYS}": _FREE,
    layout.PUSHING: {_NAME: None},
    rf"{layout.GC_FILE}|{re.escape(layout.LISTING_FILE)}": None,
}

_TOLD_ELSEWHERE: Final = r"format|config\.toml|trust\.json|lock|objects|tmp|log|logs|index\.lmdb"
"""What in the store's own folder is told by another check when it is of another kind."""

LINK_HINT: Final = "remove the link by hand, or put what it leads to in its place"
REPAIR: Final = "kvg fsck --repair"


def strays(store: Store) -> Iterator[Path]:
    """What is no part of a store: what has a name of nothing in it, is a link, or is no plain file
    or folder where one belongs."""
    yield from store.objects.strays()
    yield from _strays(store.root, STORE, store.root)


def _strays(folder: Path, tree: Tree, root: Path) -> Iterator[Path]:
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError:
        return  # gone meanwhile, or what reads it says so
    for entry in entries:
        path, is_folder = folder / entry.name, entry.is_dir(follow_symlinks=False)
        known = _known(tree, entry.name)
        inside = known[0] if known else _APART
        if tree is _FREE and is_folder:
            yield from _strays(path, _FREE, root)
        elif known is None or (entry.is_symlink() and tree is not _FREE):
            yield path
        elif is_folder and inside is not None:
            yield from () if inside is _APART else _strays(path, inside, root)
        elif inside is None and (entry.is_file() or entry.is_symlink()):
            continue
        elif folder != root or not re.fullmatch(_TOLD_ELSEWHERE, entry.name):
            yield path


def _known(tree: Tree, name: str) -> tuple[Tree | None] | None:
    """What belongs under ``name``, in a tuple; None where nothing does."""
    return next(((tree[item],) for item in tree if re.fullmatch(item, name)), None)


def leads_out(store: Store, path: Path) -> bool:
    """Whether a link lies on the way to ``path``, in the store's folder: what is behind it is not
    the store's, and is not touched."""
    inside = path.relative_to(store.root).parents
    return any((store.root / folder).is_symlink() for folder in inside if folder.parts)


def is_movable(store: Store, path: Path) -> bool:
    """Whether a stray is moved: not a link in the store's own folder, which somebody put there, nor
    one in the place of what the store reads, which would then be gone."""
    if leads_out(store, path):
        return False
    if not path.is_symlink() or path.is_relative_to(store.objects.folder):
        return True
    return path.parent != store.root and _belonging(store, path) is None


def stray_finding(store: Store, path: Path) -> Finding:
    """What ``path`` is, and what is to be done about it."""
    name = str(path.relative_to(store.root))
    hint = REPAIR if is_movable(store, path) else LINK_HINT
    return Finding(Corrupt.code, Corrupt.kind, name, f"{name}: {_kind(store, path)}", hint)


def _kind(store: Store, path: Path) -> str:
    if path.is_symlink():
        return "a link"
    if path.is_relative_to(store.objects.folder):
        return "no object"
    if not path.is_file() and not path.is_dir():
        return "not a plain file"
    known = _belonging(store, path)
    if known is None:
        return "not of a store"
    return f"no {'file' if known[0] is None else 'folder'}, which belongs there"


def _belonging(store: Store, path: Path) -> tuple[Tree | None] | None:
    """As ``_known``, of a path in the store's folder."""
    tree: Tree = STORE
    known: tuple[Tree | None] | None = None
    for part in path.relative_to(store.root).parts:
        known = _known(tree, part)
        if known is None:
            return None
        tree = known[0] or _APART
    return known
