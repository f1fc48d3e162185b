"""Log entries: what a store says, in order; canonical JSON, one object each.

``time`` is in seconds since 1970, for information only: no rule depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Final, TypeAlias

from kvg import canon
from kvg.canon import Json
from kvg.digest import Buffer, Digest, is_digest, parse_digest
from kvg.errors import Corrupt
from kvg.frozen import frozen

SCHEMA: Final = "kvg.log/1"
MAX_ENTRY_SIZE: Final = 0xFFFF
_MAX_TEXT = 1024
_HEX = frozenset("0123456789abcdef")


@frozen
class AttestationEntry:
    """``envelope``, a signed statement, is about the manifest ``subject``."""

    type: ClassVar[str] = "attestation"
    time: int
    subject: Digest
    envelope: Digest

    def __post_init__(self) -> None:
        _check_int(self.time, "time")
        _check_digest(self.subject, "subject")
        _check_digest(self.envelope, "envelope")


@frozen
class RefEntry:
    """From here on ``name`` means ``digest``, or nothing; before it meant ``previous``."""

    type: ClassVar[str] = "ref"
    time: int
    name: str
    digest: Digest | None
    previous: Digest | None

    def __post_init__(self) -> None:
        _check_int(self.time, "time")
        _check_text(self.name, "name")
        _check_digest(self.digest, "digest", optional=True)
        _check_digest(self.previous, "previous", optional=True)


@frozen
class TrustEntry:
    """The store's trust file is at ``version``, whose bytes have ``digest``."""

    type: ClassVar[str] = "trust"
    time: int
    version: int
    digest: Digest

    def __post_init__(self) -> None:
        _check_int(self.time, "time")
        _check_int(self.version, "version")
        _check_digest(self.digest, "digest")


@frozen
class RevokeEntry:
    """``keyid`` counts for what log ``origin`` had included before ``size``, nothing after."""

    type: ClassVar[str] = "revoke"
    time: int
    keyid: str
    origin: str
    size: int

    def __post_init__(self) -> None:
        _check_int(self.time, "time")
        if not isinstance(self.keyid, str) or len(self.keyid) != 64:
            raise Corrupt("keyid: not 64 hex digits")
        if not _HEX.issuperset(self.keyid):
            raise Corrupt("keyid: not 64 hex digits")
        _check_text(self.origin, "origin")
        _check_int(self.size, "size")


@frozen
class ForgetEntry:
    """The artifact ``digest`` was removed on purpose."""

    type: ClassVar[str] = "forget"
    time: int
    digest: Digest

    def __post_init__(self) -> None:
        _check_int(self.time, "time")
        _check_digest(self.digest, "digest")


@frozen
class PreregEntry:
    """The object ``digest`` was committed to before its outcome was known."""

    type: ClassVar[str] = "prereg"
    time: int
    digest: Digest

    def __post_init__(self) -> None:
        _check_int(self.time, "time")
        _check_digest(self.digest, "digest")


@frozen
class PinEntry:
    """The artifact ``digest`` is kept (``on``) or no longer kept by a pin."""

    type: ClassVar[str] = "pin"
    time: int
    digest: Digest
    on: bool

    def __post_init__(self) -> None:
        _check_int(self.time, "time")
        _check_digest(self.digest, "digest")
        if not isinstance(self.on, bool):
            raise Corrupt("on: not true or false")


@frozen
class RekeyEntry:
    """The log's key is ``public`` (a note verifier line) from the next checkpoint on."""

    type: ClassVar[str] = "rekey"
    time: int
    public: str

    def __post_init__(self) -> None:
        _check_int(self.time, "time")
        _check_text(self.public, "public")


Entry: TypeAlias = (
    AttestationEntry
    | RefEntry
    | TrustEntry
    | RevokeEntry
    | ForgetEntry
    | PreregEntry
    | PinEntry
    | RekeyEntry
)


def encode_entry(entry: Entry) -> bytes:
    """The canonical bytes of ``entry``, under 64 KiB."""
    fields: dict[str, Json] = {name: getattr(entry, name) for name in entry.__match_args__}
    return canon.encode({"schema": SCHEMA, "type": entry.type, **fields})


def parse_entry(data: Buffer, *, what: str) -> Entry:
    """The entry whose canonical bytes are ``data``.

    Raises ``Incompatible`` on another schema version, ``Corrupt`` naming ``what`` on anything
    that is not exactly one entry.
    """
    if memoryview(data).nbytes > MAX_ENTRY_SIZE:
        raise Corrupt(f"{what}: larger than any log entry")
    value = canon.decode(bytes(data), what=what)
    canon.check_schema(value, SCHEMA, what=what)
    try:
        return _read(value)
    except Corrupt as error:
        raise Corrupt(f"{what}: {error.message}", hint="kvg fsck") from None


def _read(value: Json) -> Entry:
    kind = value.get("type") if isinstance(value, Mapping) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise Corrupt(f"type {str(kind)[:40]!r} is not of version 1")
    entry_type, read = _KINDS[kind]
    fields = canon.take(value, ("schema", "type", *entry_type.__match_args__), what=kind)
    return read(canon.as_int(fields["time"], what="time"), fields)


def _read_attestation(time: int, fields: Mapping[str, Json]) -> Entry:
    return AttestationEntry(time, _digest(fields, "subject"), _digest(fields, "envelope"))


def _read_ref(time: int, fields: Mapping[str, Json]) -> Entry:
    return RefEntry(
        time,
        canon.as_str(fields["name"], what="name"),
        None if fields["digest"] is None else _digest(fields, "digest"),
        None if fields["previous"] is None else _digest(fields, "previous"),
    )


def _read_trust(time: int, fields: Mapping[str, Json]) -> Entry:
    return TrustEntry(
        time, canon.as_int(fields["version"], what="version"), _digest(fields, "digest")
    )


def _read_revoke(time: int, fields: Mapping[str, Json]) -> Entry:
    return RevokeEntry(
        time,
        canon.as_str(fields["keyid"], what="keyid"),
        canon.as_str(fields["origin"], what="origin"),
        canon.as_int(fields["size"], what="size"),
    )


def _read_forget(time: int, fields: Mapping[str, Json]) -> Entry:
    return ForgetEntry(time, _digest(fields, "digest"))


def _read_prereg(time: int, fields: Mapping[str, Json]) -> Entry:
    return PreregEntry(time, _digest(fields, "digest"))


def _read_pin(time: int, fields: Mapping[str, Json]) -> Entry:
    if not isinstance(fields["on"], bool):
        raise Corrupt("on: not true or false")
    return PinEntry(time, _digest(fields, "digest"), fields["on"])


def _read_rekey(time: int, fields: Mapping[str, Json]) -> Entry:
    return RekeyEntry(time, canon.as_str(fields["public"], what="public"))


_Read: TypeAlias = Callable[[int, Mapping[str, Json]], Entry]

_KINDS: Final[Mapping[str, tuple[type[Entry], _Read]]] = {
    AttestationEntry.type: (AttestationEntry, _read_attestation),
    RefEntry.type: (RefEntry, _read_ref),
    TrustEntry.type: (TrustEntry, _read_trust),
    RevokeEntry.type: (RevokeEntry, _read_revoke),
    ForgetEntry.type: (ForgetEntry, _read_forget),
    PreregEntry.type: (PreregEntry, _read_prereg),
    PinEntry.type: (PinEntry, _read_pin),
    RekeyEntry.type: (RekeyEntry, _read_rekey),
}


def _digest(fields: Mapping[str, Json], name: str) -> Digest:
    return parse_digest(fields[name], what=name)


def _check_digest(value: object, what: str, *, optional: bool = False) -> None:
    if not is_digest(value) and not (optional and value is None):
        raise Corrupt(f"{what}: not a digest: {str(value)[:80]!r}")


def _check_int(value: object, what: str) -> None:
    canon.as_int(value if isinstance(value, int) else None, what=what)


def _check_text(value: object, what: str) -> None:
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_TEXT or not value.isprintable():
        raise Corrupt(f"{what}: not a printable text: {str(value)[:80]!r}")
