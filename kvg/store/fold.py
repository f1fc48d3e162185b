"""The fold over the log: what each entry changes in the tables.

A ref's value is that of the newest ``ref`` entry of its name. The tables hold nothing that the log
and the objects do not say. ``kvg.store.refs`` is how they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from kvg import canon
from kvg.digest import Digest, Sha256Stream, from_raw, raw_of, sha256_bytes
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
from kvg.store.outline import encode_outline, outline_of
from kvg.store.refs import (
    ARTIFACT,
    MEMBER_BYTES,
    METHOD,
    POSITION_BYTES,
    encode_number,
    ref_value,
)

if TYPE_CHECKING:
    from kvg.log.log import Log
    from kvg.objects.manifest import Manifest
    from kvg.store.tables import Tables, WritableTables

Reader = Callable[[Digest], "tuple[Manifest, Sequence[int]] | None"]
"""Gives a manifest and its token ids; None when they are not there or not sound."""

ClaimReader = Callable[[Digest], "FamilyClaim | Rejection | None"]
"""Gives what an envelope says that the tables list; None when nothing, or it can't be read."""


@frozen
class FamilyClaim:
    """What an envelope's subject is to a family: a method of it, or an artifact made for it."""

    family: Digest
    is_method: bool


@frozen
class Rejection:
    """An envelope's subject is no artifact, but what is left of a deposit that was rejected."""


def no_claim(envelope: Digest) -> None:
    """Says nothing of any family."""


def fold_log(
    tables: WritableTables,
    log: Log,
    start: int,
    stop: int,
    read: Reader,
    claim: ClaimReader = no_claim,
) -> None:
    """Apply the entries [``start``, ``stop``) of ``log``. Raises ``Corrupt``, ``Incompatible``."""
    from kvg.log.entry import parse_entry

    for index, raw in enumerate(log.read(start, stop), start):
        fold(tables, index, parse_entry(raw, what=f"log entry {index}"), read, claim)


def fold(
    tables: WritableTables, index: int, entry: Entry, read: Reader, claim: ClaimReader = no_claim
) -> None:
    """Apply the log's entry number ``index`` to ``tables``."""
    match entry:
        case RefEntry(name=name, digest=digest):
            _fold_ref(tables, index, name, digest)
            if digest is not None:
                list_again(tables, digest, read, claim)
        case AttestationEntry(subject=subject, envelope=envelope):
            _fold_attestation(tables, index, subject, envelope, read, claim)
        case PinEntry(digest=pinned, on=on):
            if on:
                tables.put(t.PINS, raw_of(pinned), encode_number(index))
            else:
                tables.delete(t.PINS, raw_of(pinned))
        case TrustEntry(version=version, digest=trust):
            tables.put(t.TRUST, encode_number(version), raw_of(trust))
        case RevokeEntry(keyid=keyid, origin=origin, size=size):
            tables.put(t.REVOKED, sha256_bytes(f"{keyid}\n{origin}".encode()), encode_number(size))
        case ForgetEntry(digest=forgotten):
            _fold_forget(tables, index, forgotten, read, claim)
        case PreregEntry(digest=expected):
            tables.put(t.PREREGISTERED, raw_of(expected), encode_number(index))
        case _:
            return


def _fold_ref(tables: WritableTables, index: int, name: str, digest: Digest | None) -> None:
    if not is_ref_name(name):
        return
    known = ref_value(tables, name)
    moves = known.moves + 1 if known else 1
    move = encode_number(index) + (raw_of(digest) if digest else b"")
    tables.put(t.REFS, name.encode(), encode_number(moves) + move)
    tables.put(t.HISTORY, name.encode() + b"\0" + encode_number(moves), move)


def _fold_attestation(
    tables: WritableTables,
    index: int,
    subject: Digest,
    envelope: Digest,
    read: Reader,
    claim: ClaimReader,
) -> None:
    is_first = next(tables.scan(t.ATTESTATIONS, raw_of(subject)), None) is None
    tables.put(t.ATTESTATIONS, raw_of(subject) + encode_number(index), raw_of(envelope))
    tables.delete(t.FORGOTTEN, raw_of(subject))
    _fold_claim(tables, index, subject, claim(envelope))
    if _list_artifact(tables, subject, read) and not is_first:  # it was gone, and is here again
        _list_claims(tables, subject, claim)


def list_again(
    tables: WritableTables, subject: Digest, read: Reader, claim: ClaimReader = no_claim
) -> None:
    """List what the log attests of ``subject`` where its objects came after the tables were made.

    The tables are then what they would be had they been made now. Nothing where it is listed.
    """
    is_attested = next(tables.scan(t.ATTESTATIONS, raw_of(subject)), None) is not None
    if is_attested and not is_listed(tables, subject):
        _list_artifact(tables, subject, read)
        _list_claims(tables, subject, claim)


def is_listed(tables: Tables, digest: Digest) -> bool:
    """Whether the artifact was there when the tables were made, or came back since."""
    return tables.get(t.OUTLINES, raw_of(digest)) is not None


def _list_artifact(tables: WritableTables, digest: Digest, read: Reader) -> bool:
    """Whether the artifact is listed now, and was not before."""
    found = None if is_listed(tables, digest) else read(digest)
    if found is None:
        return False
    note_manifest(tables, digest, *found)
    return True


def _list_claims(tables: WritableTables, subject: Digest, claim: ClaimReader) -> None:
    for key, envelope in tuple(tables.scan(t.ATTESTATIONS, raw_of(subject))):
        index = int.from_bytes(key[-POSITION_BYTES:], "big")
        _fold_claim(tables, index, subject, claim(from_raw(envelope)))


def _fold_claim(
    tables: WritableTables, index: int, subject: Digest, claim: FamilyClaim | Rejection | None
) -> None:
    if isinstance(claim, Rejection):
        tables.put(t.REJECTED, raw_of(subject), encode_number(index))
    if not isinstance(claim, FamilyClaim):
        return
    key = raw_of(claim.family)
    kind = METHOD if claim.is_method else ARTIFACT
    known = tables.get(t.FAMILIES, key) or b""
    row = kind + encode_number(index) + raw_of(subject)
    if known[-MEMBER_BYTES + 1 :] >= row[1:]:  # it is an older entry's, of what came back
        rows = sorted({*_members(tables, key), row}, key=lambda row: row[1:])
        known, row = b"", b"".join(rows)
    tables.put(t.FAMILIES, key, known + row)


def _fold_forget(
    tables: WritableTables, index: int, digest: Digest, read: Reader, claim: ClaimReader
) -> None:
    """What was attested before counts no longer: an artifact deposited again begins anew."""
    for key, envelope in list(tables.scan(t.ATTESTATIONS, raw_of(digest))):
        tables.delete(t.ATTESTATIONS, key)
        said = claim(from_raw(envelope))
        if isinstance(said, FamilyClaim):
            _drop_member(tables, said.family, digest)
    tables.delete(t.REJECTED, raw_of(digest))
    tables.delete(t.OUTLINES, raw_of(digest))
    found = read(digest)
    if found is not None:
        tables.delete(t.TOKENS, tokens_key(found[0]) + raw_of(digest))
        for _, prefix in prefix_keys(*found):
            tables.delete(t.PREFIXES, prefix + raw_of(digest))
    tables.put(t.FORGOTTEN, raw_of(digest), encode_number(index))


def _drop_member(tables: WritableTables, family: Digest, digest: Digest) -> None:
    listed = _members(tables, raw_of(family))
    left = b"".join(row for row in listed if row[1 + POSITION_BYTES :] != raw_of(digest))
    if left:
        tables.put(t.FAMILIES, raw_of(family), left)
    else:
        tables.delete(t.FAMILIES, raw_of(family))


def _members(tables: Tables, key: bytes) -> list[bytes]:
    """The rows of a family, in the order of the log."""
    rows = tables.get(t.FAMILIES, key) or b""
    return [rows[at : at + MEMBER_BYTES] for at in range(0, len(rows), MEMBER_BYTES)]


def note_manifest(
    tables: WritableTables, digest: Digest, manifest: Manifest, ids: Sequence[int]
) -> None:
    """Make an artifact findable by its token ids and by each run of whole pages it begins with.

    Its outline is kept beside it.
    """
    tables.put(t.OUTLINES, raw_of(digest), encode_outline(outline_of(manifest)))
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
