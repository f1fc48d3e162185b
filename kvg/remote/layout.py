"""What lies where on a remote, and the bytes of its small documents.

    format                  one line: kvg-remote 1 (a bare store's own line does as well)
    objects/ab/<62 hex>     objects in stored form, named by the digest of their raw bytes
    logs/<origin>/…         the log of one publisher: checkpoint, verifier, publisher, tiles
    refs/<name>             a pointer: {schema, origin, index}
    keys/<keyid>.pub        public keys: offers, not trust
    pushing/<origin>        there while the owner of that log pushes
    gc                      there while somebody removes what nothing needs: its log's name
    listing.json            what is there, for places that can't list: a hint, never proof

Every name is one or more parts of lower-case letters, digits and ``. _ -``, none begins with a dot
and none holds ``..``: so no name, whoever gave it, leads out of the remote or of a store.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kvg import canon
from kvg.digest import Digest, hex_of
from kvg.errors import Conflict, Corrupt, Incompatible, KvgError
from kvg.frozen import frozen

if TYPE_CHECKING:
    from kvg.signing.keys import PublicKey

FORMAT_FILE: Final = "format"
FORMAT: Final = b"kvg-remote 1\n"
STORE_FORMAT: Final = b"kvg-store 1\n"
LISTING_FILE: Final = "listing.json"
OBJECTS: Final = "objects"
LOGS: Final = "logs"
REFS: Final = "refs"
KEYS: Final = "keys"
PUSHING: Final = "pushing"
"""Who pushes: a file for each log, there while its owner does."""

GC_FILE: Final = "gc"
"""Who removes what nothing needs, there while it does."""

FOLDERS: Final = (OBJECTS, LOGS, REFS, KEYS, PUSHING)

CHECKPOINT: Final = "checkpoint"
VERIFIER: Final = "verifier"
PUBLISHER: Final = "publisher"
COSIGNED: Final = "cosigned"

PUBLISHER_LINE: Final = "kvg-publisher/1"

STORE_CHECKPOINT: Final = "log/checkpoint"
"""The checkpoint of a store's own log, where a store is a remote, too: to be read, never written.

Its first lines say whose the store is, and how long its log.
"""

MAX_SMALL_BYTES: Final = 1 << 16
"""The most that a format line, or a log's line about itself, may have."""

MAX_POINTER_BYTES: Final = 1 << 10
MAX_KEY_BYTES: Final = 1 << 12
MAX_KEYS: Final = 10_000
"""Keys on offer at one place."""

MAX_REFS: Final = 1_000_000
"""Refs at one place of which each pointer is looked at."""

MAX_LISTING_BYTES: Final = 64 << 20
MAX_NAME_BYTES: Final = 400
POINTER_SCHEMA: Final = "kvg.pointer/1"
LISTING_SCHEMA: Final = "kvg.listing/1"

_PART = r"[a-z0-9_-][a-z0-9._-]*"
_NAME = rf"{_PART}(?:/{_PART})*"


_USUAL = re.compile(
    rb'\{"index":(0|[1-9][0-9]{0,14}),"origin":"([a-z0-9_-][a-z0-9_-]*)",'
    rb'"schema":"kvg\.pointer/1"\}'
)
"""A pointer in canonical bytes, whose log has a usual name."""


def publisher_text(origin: str, log_key: PublicKey) -> str:
    """What a publisher signs to vouch for the log ``origin``."""
    from kvg.signing.note import encode_verifier

    return f"{PUBLISHER_LINE}\n{encode_verifier(origin, log_key)}\n"


@frozen
class Pointer:
    """Where a ref's value stands: entry ``index`` of the log ``origin``."""

    origin: str
    index: int

    def __post_init__(self) -> None:
        if not is_origin(self.origin) or not 0 <= self.index <= canon.MAX_INTEGER:
            raise Corrupt(f"pointer: entry {self.index} of {self.origin[:80]!r}")


class MalformedPointer(Corrupt):
    """What lies in the place of a pointer and is none; ``data`` are its bytes, to replace it."""

    def __init__(self, message: str, data: bytes, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.data = data


class HeldUp(KvgError):
    """Others are at work there; it says nothing of what lies there."""

    code = Conflict.code
    kind = Conflict.kind


class InTheWay(Conflict):
    """Another file, or a folder that holds some, lies where a file is to be."""


Expected = Pointer | MalformedPointer | None
"""What a pointer has to be for a move to go ahead; None: not there."""


@frozen
class Listing:
    """What a remote holds beside objects, each ascending."""

    origins: tuple[str, ...] = ()
    refs: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()


def is_name(name: str) -> bool:
    """Whether ``name`` may be a file of a remote."""
    return (
        len(name) <= MAX_NAME_BYTES and re.fullmatch(_NAME, name) is not None and (".." not in name)
    )


def check_name(name: str, *, what: str) -> None:
    """Raise ``Corrupt`` naming ``what`` unless ``name`` may be a file of a remote."""
    if not is_name(name):
        raise Corrupt(f"{what}: {name[:80]!r} is not a name of a remote's file")


def is_origin(origin: str) -> bool:
    """Whether a log of this name can lie on a remote."""
    return "/" not in origin and is_name(origin)


def object_name(digest: Digest) -> str:
    """Where an object lies."""
    digits = hex_of(digest)
    return f"{OBJECTS}/{digits[:2]}/{digits[2:]}"


def encode_pointer(pointer: Pointer) -> bytes:
    """The canonical bytes of ``pointer``."""
    return canon.encode(
        {"schema": POINTER_SCHEMA, "origin": pointer.origin, "index": pointer.index}
    )


def parse_pointer(data: bytes, *, what: str) -> Pointer:
    """The pointer in the untrusted ``data``. Raises ``Corrupt``, ``Incompatible``."""
    if len(data) > MAX_POINTER_BYTES:
        raise Corrupt(f"{what}: larger than any pointer")
    usual = _USUAL.fullmatch(data)
    if usual is not None:  # thousands are read at once; whatever else it is, is found below
        return Pointer(usual[2].decode("ascii"), int(usual[1]))
    value = canon.decode(data, what=what)
    canon.check_schema(value, POINTER_SCHEMA, what=what)
    found = canon.take(value, ("schema", "origin", "index"), what=what)
    origin = canon.as_str(found["origin"], what=f"{what}: origin")
    if not is_origin(origin):
        raise Corrupt(f"{what}: {origin[:80]!r} is no log")
    return Pointer(origin, canon.as_int(found["index"], what=f"{what}: index"))


def check_keys(number: int, *, what: str) -> None:
    """Raise ``Corrupt`` where more keys are on offer than anybody could look through."""
    if number > MAX_KEYS:
        raise Corrupt(f"{what}: offers {number:,} keys, more than {MAX_KEYS:,}")


def encode_listing(listing: Listing) -> bytes:
    """The canonical bytes of ``listing``."""
    return canon.encode(
        {
            "schema": LISTING_SCHEMA,
            "origins": listing.origins,
            "refs": listing.refs,
            "keys": listing.keys,
        }
    )


def parse_listing(data: bytes, *, what: str) -> Listing:
    """The listing in the untrusted ``data``. Raises ``Corrupt``, ``Incompatible``."""
    if len(data) > MAX_LISTING_BYTES:
        raise Corrupt(f"{what}: larger than any listing")
    value = canon.decode(data, what=what)
    canon.check_schema(value, LISTING_SCHEMA, what=what)
    found = canon.take(value, ("schema", "origins", "refs", "keys"), what=what)
    read: list[tuple[str, ...]] = []
    for key in ("origins", "refs", "keys"):
        names = tuple(
            canon.as_str(name, what=f"{what}: {key}")
            for name in canon.as_list(found[key], what=f"{what}: {key}")
        )
        for name in names:
            check_name(name, what=f"{what}: {key}")
        read.append(names)
    return Listing(*read)


@frozen
class StoreLog:
    """The log of a store that is a remote, too, as that says; ``size``: how many entries."""

    origin: str
    size: int


def parse_store_log(note: bytes) -> StoreLog | None:
    """What the first lines of the untrusted checkpoint ``note`` say; None where nothing."""
    lines = note[:MAX_NAME_BYTES].decode("utf-8", "replace").split("\n")
    is_size = len(lines) > 1 and lines[1].isascii() and lines[1].isdigit()
    return StoreLog(lines[0], int(lines[1])) if is_size else None


def check_format(data: bytes, *, what: str) -> None:
    """Raise ``Incompatible`` on a newer format line, ``Corrupt`` on what is none."""
    if data in (FORMAT, STORE_FORMAT):
        return
    line = data[:64].decode("ascii", "replace").strip()
    if line.startswith(("kvg-remote ", "kvg-store ")):
        raise Incompatible(f"{what}: {line}, this kvg reads kvg-remote 1", hint="update kvg")
    raise Corrupt(f"{what}: not the format line of a remote")


def check_served(name: str, *, what: str) -> None:
    """Raise ``Corrupt`` unless ``name`` may be a file of a remote, and of no other part of a store.

    A remote may be a bare store: what else lies there is nobody's business.
    """
    check_name(name, what=what)
    if name not in (FORMAT_FILE, LISTING_FILE, GC_FILE) and name.partition("/")[0] not in FOLDERS:
        raise Corrupt(f"{what}: {name[:80]!r} is not a file of a remote")
