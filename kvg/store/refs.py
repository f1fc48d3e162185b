"""What the tables of the index say: refs and their history, attestations, families, pins, trust.

``kvg.store.fold`` fills them. What they answer is a hint that the verification checks again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvg.digest import Digest, from_raw, raw_of
from kvg.errors import Corrupt
from kvg.frozen import frozen
from kvg.store import tables as t

if TYPE_CHECKING:
    from kvg.store.tables import Tables

POSITION_BYTES = 8

METHOD = b"M"

ARTIFACT = b"A"

MEMBER_BYTES = 1 + POSITION_BYTES + 32


@frozen
class Member:
    """A method or an artifact that the log, at ``index``, lists for a family."""

    index: int
    digest: Digest
    is_method: bool


@frozen
class RefValue:
    """What a ref is now: its digest (None: removed), its log index, and how often it moved."""

    name: str
    digest: Digest | None
    index: int
    moves: int


@frozen
class Move:
    """One move of a ref, at its position in the log."""

    index: int
    digest: Digest | None


@frozen
class LoggedAttestation:
    """An envelope that the log lists for a subject, at its position in the log."""

    index: int
    envelope: Digest


def family_members(tables: Tables, family: Digest) -> tuple[Member, ...]:
    """What is listed for ``family``, in the order of the log: one look-up by its digest."""
    rows = tables.get(t.FAMILIES, raw_of(family)) or b""
    return tuple(_member(rows[at : at + MEMBER_BYTES]) for at in range(0, len(rows), MEMBER_BYTES))


def all_families(tables: Tables) -> Iterator[Digest]:
    """Every family that something is listed for, ascending."""
    for key, _ in tables.scan(t.FAMILIES):
        yield from_raw(key)


def _member(row: bytes) -> Member:
    if len(row) != MEMBER_BYTES or row[:1] not in (METHOD, ARTIFACT):
        raise Corrupt("index: members of a family are malformed", hint="kvg reindex")
    index = int.from_bytes(row[1 : 1 + POSITION_BYTES], "big")
    return Member(index, from_raw(row[1 + POSITION_BYTES :]), row[:1] == METHOD)


def all_methods(tables: Tables) -> Iterator[Digest]:
    """Every method that is listed for some family; one of several families more than once."""
    for family in all_families(tables):
        for member in family_members(tables, family):
            if member.is_method:
                yield member.digest


def ref_value(tables: Tables, name: str) -> RefValue | None:
    """What the ref is now; None for a name that never was one."""
    raw = tables.get(t.REFS, name.encode())
    return None if raw is None else _ref_value(name, raw)


def all_refs(tables: Tables) -> Iterator[RefValue]:
    """Every ref that ever was, by name, removed ones too."""
    for key, raw in tables.scan(t.REFS):
        yield _ref_value(key.decode(), raw)


def first_ref(tables: Tables) -> tuple[str, Digest] | None:
    """The first ref that stands, by name, and what it stands for; None when there is none."""
    standing = ((ref.name, ref.digest) for ref in all_refs(tables) if ref.digest is not None)
    return next(standing, None)


def newest_moves(tables: Tables) -> Iterator[tuple[str, Move]]:
    """(name, newest move) of every ref that ever was, by name, removed ones too."""
    for key, raw in tables.scan(t.REFS):
        name = key.decode()
        yield name, _move(raw[POSITION_BYTES:], name)


def _ref_value(name: str, raw: bytes) -> RefValue:
    move = _move(raw[POSITION_BYTES:], name)
    moves = int.from_bytes(raw[:POSITION_BYTES], "big")
    return RefValue(name, move.digest, move.index, moves)


def history(tables: Tables, name: str) -> tuple[Move, ...]:
    """Every move of a ref, the newest first."""
    rows = list(tables.scan(t.HISTORY, name.encode() + b"\0"))
    return tuple(_move(value, name) for _, value in reversed(rows))


def past_move(tables: Tables, name: str, back: int) -> Move | None:
    """The move before the newest by ``back``; None when the ref has moved less often."""
    known = ref_value(tables, name)
    if known is None or back >= known.moves:
        return None
    raw = tables.get(t.HISTORY, name.encode() + b"\0" + encode_number(known.moves - back))
    return None if raw is None else _move(raw, name)


def _move(raw: bytes, name: str) -> Move:
    if len(raw) not in (POSITION_BYTES, POSITION_BYTES + 32):
        raise Corrupt(f"index: history of {name} is malformed", hint="kvg reindex")
    index, rest = int.from_bytes(raw[:POSITION_BYTES], "big"), raw[POSITION_BYTES:]
    return Move(index, from_raw(rest) if rest else None)


def attestations(tables: Tables, subject: Digest) -> tuple[LoggedAttestation, ...]:
    """The envelopes logged for ``subject``, in the order of the log."""
    return tuple(
        LoggedAttestation(int.from_bytes(key[32:], "big"), from_raw(value))
        for key, value in tables.scan(t.ATTESTATIONS, raw_of(subject))
    )


def subjects(tables: Tables, prefix: bytes = b"") -> Iterator[Digest]:
    """Every artifact that has an attestation, ascending."""
    last = b""
    for key, _ in tables.scan(t.ATTESTATIONS, prefix):
        if key[:32] != last:
            last = key[:32]
            yield from_raw(last)


def listed(tables: Tables, table: str, key: bytes) -> tuple[Digest, ...]:
    """The artifacts listed under a 32-byte key of ``TOKENS`` or ``PREFIXES``."""
    return tuple(from_raw(row[32:]) for row, _ in tables.scan(table, key))


def envelopes(tables: Tables) -> Iterator[tuple[Digest, Digest]]:
    """(subject, envelope) of every attestation that counts, by subject."""
    for key, value in tables.scan(t.ATTESTATIONS):
        yield from_raw(key[:32]), from_raw(value)


def once_named(tables: Tables) -> Iterator[Digest]:
    """Every digest that some ref stands for or once stood for; some more than once."""
    for key, raw in tables.scan(t.HISTORY):
        move = _move(raw, key.decode("utf-8", "replace"))
        if move.digest is not None:
            yield move.digest


def digests(tables: Tables, table: str) -> Iterator[tuple[Digest, int]]:
    """Each digest of ``PINS``, ``FORGOTTEN`` or ``PREREGISTERED`` with its position in the log."""
    for key, value in tables.scan(table):
        yield from_raw(key), int.from_bytes(value, "big")


def trust_versions(tables: Tables) -> tuple[tuple[int, Digest], ...]:
    """Every logged version of the trust file with its digest, ascending."""
    return tuple(
        (int.from_bytes(key, "big"), from_raw(value)) for key, value in tables.scan(t.TRUST)
    )


def encode_number(value: int) -> bytes:
    """A position in the log, or a count, as it stands in keys and values."""
    return value.to_bytes(POSITION_BYTES, "big")
