"""The fold over the log: what each entry changes in the tables, and how the tables are read.

A ref's value is that of the newest ``ref`` entry of its name. The tables hold nothing that the log
and the objects do not say; what they answer is a hint that the verification checks again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from kvg import canon
from kvg.digest import Digest, Sha256Stream, from_raw, raw_of, sha256_bytes
from kvg.errors import Corrupt
from kvg.frozen import frozen
from kvg.log.entry import (
    AttestationEntry,
    Entry,
    ForgetEntry,
    PinEntry,
    PreregEntry,
    RefEntry,
    RevokeEntry,
    TrustEntry,
)
from kvg.objects.tokens import encode_ids
from kvg.store import tables as t
from kvg.store.names import is_ref_name

if TYPE_CHECKING:
    from kvg.objects.manifest import Manifest
    from kvg.store.tables import Tables, WritableTables

Reader = Callable[[Digest], "tuple[Manifest, Sequence[int]] | None"]
"""Gives a manifest and its token ids; None when they are not there or not sound."""

ClaimReader = Callable[[Digest], "FamilyClaim | None"]
"""Gives what an envelope says of a family; None when it says nothing, or can't be read."""

POSITION_BYTES = 8
METHOD = b"M"
ARTIFACT = b"A"
MEMBER_BYTES = 1 + POSITION_BYTES + 32


@frozen
class FamilyClaim:
    """What an envelope's subject is to a family: a method of it, or an artifact made for it."""

    family: Digest
    is_method: bool


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


def no_claim(envelope: Digest) -> None:
    """Says nothing of any family."""


def fold(
    tables: WritableTables, index: int, entry: Entry, read: Reader, claim: ClaimReader = no_claim
) -> None:
    """Apply the log's entry number ``index`` to ``tables``."""
    match entry:
        case RefEntry(name=name, digest=digest):
            _fold_ref(tables, index, name, digest)
        case AttestationEntry(subject=subject, envelope=envelope):
            _fold_attestation(tables, index, subject, envelope, read)
            _fold_family(tables, index, subject, claim(envelope))
        case PinEntry(digest=pinned, on=on):
            if on:
                tables.put(t.PINS, raw_of(pinned), _number(index))
            else:
                tables.delete(t.PINS, raw_of(pinned))
        case TrustEntry(version=version, digest=trust):
            tables.put(t.TRUST, _number(version), raw_of(trust))
        case RevokeEntry(keyid=keyid, origin=origin, size=size):
            tables.put(t.REVOKED, sha256_bytes(f"{keyid}\n{origin}".encode()), _number(size))
        case ForgetEntry(digest=forgotten):
            _fold_forget(tables, index, forgotten, read, claim)
        case PreregEntry(digest=expected):
            tables.put(t.PREREGISTERED, raw_of(expected), _number(index))
        case _:
            return


def _fold_ref(tables: WritableTables, index: int, name: str, digest: Digest | None) -> None:
    if not is_ref_name(name):
        return
    known = ref_value(tables, name)
    moves = known.moves + 1 if known else 1
    move = _number(index) + (raw_of(digest) if digest else b"")
    tables.put(t.REFS, name.encode(), _number(moves) + move)
    tables.put(t.HISTORY, name.encode() + b"\0" + _number(moves), move)


def _fold_attestation(
    tables: WritableTables, index: int, subject: Digest, envelope: Digest, read: Reader
) -> None:
    key = raw_of(subject) + _number(index)
    is_first = next(tables.scan(t.ATTESTATIONS, raw_of(subject)), None) is None
    tables.put(t.ATTESTATIONS, key, raw_of(envelope))
    tables.delete(t.FORGOTTEN, raw_of(subject))
    if is_first:
        found = read(subject)
        if found is not None:
            note_manifest(tables, subject, *found)


def _fold_family(
    tables: WritableTables, index: int, subject: Digest, claim: FamilyClaim | None
) -> None:
    if claim is None:
        return
    key = raw_of(claim.family)
    kind = METHOD if claim.is_method else ARTIFACT
    row = kind + _number(index) + raw_of(subject)
    tables.put(t.FAMILIES, key, (tables.get(t.FAMILIES, key) or b"") + row)


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


def _fold_forget(
    tables: WritableTables, index: int, digest: Digest, read: Reader, claim: ClaimReader
) -> None:
    """What was attested before counts no longer: an artifact deposited again begins anew."""
    for key, envelope in list(tables.scan(t.ATTESTATIONS, raw_of(digest))):
        tables.delete(t.ATTESTATIONS, key)
        said = claim(from_raw(envelope))
        if said is not None:
            _drop_member(tables, said.family, digest)
    found = read(digest)
    if found is not None:
        tables.delete(t.TOKENS, tokens_key(found[0]) + raw_of(digest))
        for _, prefix in prefix_keys(*found):
            tables.delete(t.PREFIXES, prefix + raw_of(digest))
    tables.put(t.FORGOTTEN, raw_of(digest), _number(index))


def _drop_member(tables: WritableTables, family: Digest, digest: Digest) -> None:
    rows = tables.get(t.FAMILIES, raw_of(family)) or b""
    listed = [rows[at : at + MEMBER_BYTES] for at in range(0, len(rows), MEMBER_BYTES)]
    left = b"".join(row for row in listed if row[1 + POSITION_BYTES :] != raw_of(digest))
    if left:
        tables.put(t.FAMILIES, raw_of(family), left)
    else:
        tables.delete(t.FAMILIES, raw_of(family))


def note_manifest(
    tables: WritableTables, digest: Digest, manifest: Manifest, ids: Sequence[int]
) -> None:
    """Make an artifact findable by its token ids and by each run of whole pages it begins with."""
    whole = tokens_key(manifest)
    tables.put(t.TOKENS, whole + raw_of(digest), b"")
    for _, key in prefix_keys(manifest, ids):
        tables.put(t.PREFIXES, key + raw_of(digest), b"")


def tokens_key(manifest: Manifest) -> bytes:
    """Where an artifact with this model, engine, page size, ids and cuts is listed."""
    return find_key(
        manifest.model.fingerprint,
        manifest.engine.fingerprint,
        manifest.layout.page_tokens,
        manifest.tokens.digest,
        manifest.cuts,
    )


def find_key(
    model: Digest, engine: Digest, page_tokens: int, tokens: Digest, cuts: Sequence[int]
) -> bytes:
    """32 bytes that stand for one computation; the fields can't run together."""
    value: canon.Json = ["tokens", model, engine, page_tokens, tokens, tuple(cuts)]
    return sha256_bytes(canon.encode(value))


def prefix_keys(manifest: Manifest, ids: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """(tokens, key) of each run of whole pages of an artifact, shortest first."""
    return find_prefix_keys(
        manifest.model.fingerprint,
        manifest.engine.fingerprint,
        manifest.layout.page_tokens,
        ids,
    )


def find_prefix_keys(
    model: Digest, engine: Digest, page_tokens: int, ids: Sequence[int]
) -> Iterator[tuple[int, bytes]]:
    """(tokens, key) for each whole number of pages that ``ids`` begin with, shortest first."""
    stream = Sha256Stream()
    for end in range(page_tokens, len(ids) + 1, page_tokens):
        stream.update(encode_ids(ids[end - page_tokens : end]))
        value: canon.Json = ["prefix", model, engine, page_tokens, end, stream.digest()]
        yield end, sha256_bytes(canon.encode(value))


def ref_value(tables: Tables, name: str) -> RefValue | None:
    """What the ref is now; None for a name that never was one."""
    raw = tables.get(t.REFS, name.encode())
    return None if raw is None else _ref_value(name, raw)


def all_refs(tables: Tables) -> Iterator[RefValue]:
    """Every ref that ever was, by name, removed ones too."""
    for key, raw in tables.scan(t.REFS):
        yield _ref_value(key.decode(), raw)


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
    raw = tables.get(t.HISTORY, name.encode() + b"\0" + _number(known.moves - back))
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


def _number(value: int) -> bytes:
    return value.to_bytes(POSITION_BYTES, "big")
