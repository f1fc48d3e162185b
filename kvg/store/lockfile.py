"""``kvg.lock``: what each ref stood for, for CI. TOML, one line a ref, ascending.

# kvg lock
version = 1

[refs]
"docs/handbook" = "sha256:…"
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kvg import durable
from kvg.digest import Digest, is_digest
from kvg.errors import Corrupt, Incompatible, NotFound
from kvg.store.config import Config
from kvg.store.names import is_ref_name

if TYPE_CHECKING:
    from pathlib import Path

FILE: Final = "kvg.lock"
VERSION: Final = 1


def encode_lock(refs: Mapping[str, Digest]) -> bytes:
    """The bytes of a lock file: the same for the same refs."""
    lines = [f'"{name}" = "{digest}"' for name, digest in sorted(refs.items())]
    text = "\n".join(("# made by kvg lock", f"version = {VERSION}", "", "[refs]", *lines))
    return text.encode("utf-8") + b"\n"


def write_lock(path: Path, refs: Mapping[str, Digest]) -> None:
    """Write the lock file, in one step."""
    durable.replace(path, [encode_lock(refs)], staging=path.parent)


def read_lock(path: Path) -> dict[str, Digest]:
    """What the lock file says each ref stands for.

    Raises ``NotFound``, ``Incompatible`` on another version, ``Corrupt`` on anything else in it.
    """
    if path.exists() and not path.is_file():
        raise Corrupt(f"{path}: not a plain file", hint="kvg lock makes one")
    if not path.is_file():
        raise NotFound(f"{path}: no such file", hint="kvg lock makes it")
    found = dict(Config.top_level(path))
    version, refs = found.pop("version", None), found.pop("refs", {})
    if type(version) is not int or version != VERSION:
        raise Incompatible(f"{path}: version {version}, this kvg reads {VERSION}")
    if found or not isinstance(refs, Mapping):
        raise Corrupt(f"{path}: {next(iter(found), 'refs')} has no business there")
    locked: dict[str, Digest] = {}
    for name, digest in refs.items():
        if not is_ref_name(name) or not is_digest(digest):
            raise Corrupt(f"{path}: {name[:80]!r} is not a ref with its digest")
        locked[name] = digest
    return locked
