"""What is kept of other publishers' logs: the copies, who vouches for them, and receipts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kvg import durable
from kvg.digest import PREFIX, Digest, short
from kvg.errors import Corrupt, Incompatible, NotFound, Untrusted
from kvg.store.peers import FOLDER, PUBLISHER, RECEIPTS, SEEN
from kvg.verify.findings import Finding

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.errors import KvgError
    from kvg.log.log import Log
    from kvg.signing.cosignature import Witness
    from kvg.signing.keys import PublicKey
    from kvg.store import Store

_REFUSED = (Corrupt, Incompatible, NotFound, Untrusted)


COSIGNED = "cosigned"
FETCH = "kvg fetch REMOTE"


def peer_findings(store: Store) -> Iterator[Finding]:
    """Every fault, about a folder or file by its name in the store's; a pull takes a new one.

    What lies beside a copy that is not sound is not looked at.
    """
    for origin in store.peers.origins():
        name = f"{FOLDER}/{origin}"
        faults: list[Corrupt | Incompatible | NotFound | Untrusted]
        try:
            kept = store.peers.log(origin)
            if kept is not None and kept.origin != origin:
                raise Untrusted(f"{name}: is the log {kept.origin}")
            faults = [] if kept is None else [*kept.faults()]
        except _REFUSED as error:
            kept, faults = None, [error]
        yield from (_finding(fault, name) for fault in faults)
        if kept is not None and not faults:
            cosigned = _cosigned_faults(store, kept)
            yield from (_finding(fault, f"{name}/{COSIGNED}") for fault in cosigned)
            yield from _beside(store, kept, name)


def _finding(error: KvgError, name: str) -> Finding:
    hint = FETCH if error.hint == FETCH else f"kvg fsck --repair, then {FETCH}"
    return Finding(error.code, error.kind, name, error.message, hint)


def _cosigned_faults(store: Store, log: Log) -> Iterator[Corrupt | Untrusted]:
    """What is wrong with what witnesses cosigned, perhaps under an earlier key of the log.

    Of witnesses that are not known here no more than that it is what came.
    """
    from kvg.log.checkpoint import MAX_CHECKPOINT_SIZE, open_checkpoint, parse_checkpoint
    from kvg.signing.note import parse_note
    from kvg.store.witnesses import configured, has_sum, lost, unsigned, with_sum

    data = log.source.read(COSIGNED, MAX_CHECKPOINT_SIZE)
    seen = store.peers.seen_cosigned(log.origin)
    if data is None:
        yield from lost(log, b"", seen, hint=FETCH)
        return
    what = f"log {log.folder}/{COSIGNED}"
    try:
        if not has_sum(data):
            raise Corrupt(f"{what}: has no checksum yet", hint=FETCH)
        if data != with_sum(data):
            raise Corrupt(f"{what}: does not match its checksum")
        said = parse_checkpoint(data, what=what)
        if not log.is_extension_of(said.size, said.root):
            raise Untrusted(f"{what}: not a checkpoint of this log")
        key = _key_at(log, said.size)
        if key is not None:
            open_checkpoint(data, origin=log.origin, verifier=key, what=what)
        for line in unsigned(log, parse_note(data, what=what), configured(store)):
            yield Untrusted(f"{what}: {line.name} did not sign this")
        yield from lost(log, data, seen, hint=FETCH)
    except (Corrupt, Untrusted) as error:
        yield error


def _key_at(log: Log, size: int) -> PublicKey | None:
    """The key that signed at ``size``; None for an earlier one that is not kept here."""
    from kvg.log.rekey import key_at

    try:
        return key_at(log, size)
    except Untrusted:
        return None


def _beside(store: Store, log: Log, name: str) -> Iterator[Finding]:
    if not (log.folder / PUBLISHER).exists():
        text = f"{name}/{PUBLISHER}: missing: nothing here says who vouches for this log"
        yield Finding(Corrupt.code, Corrupt.kind, f"{name}/{PUBLISHER}", text, FETCH)
    else:
        try:
            _check_publisher(store, log, f"{name}/{PUBLISHER}")
        except _REFUSED as error:
            yield _finding(error, f"{name}/{PUBLISHER}")
    witnesses = _witnesses(store)
    for part, check in ((RECEIPTS, _check_receipt), (SEEN, _check_seen)):
        folder = log.folder / part
        for found in durable.names_in(folder):
            what = f"{name}/{part}/{found}"
            try:
                check(log, folder / found, what, witnesses)
            except _REFUSED as error:
                yield _finding(error, what)


def _check_publisher(store: Store, log: Log, what: str) -> None:
    """That the note is about this log, and signed by a key that was ever trusted here."""
    from kvg.remote.layout import publisher_text
    from kvg.signing.note import is_note_signed, parse_note

    note = parse_note(store.peers.publisher(log.origin) or b"", what=what)
    texts = [publisher_text(log.origin, key) for key in _keys_of(log)]
    if note.text not in texts:
        raise Corrupt(f"{what}: not about the log {log.origin}")
    try:
        store.trust_versions()
    except _REFUSED:
        return  # who was trusted is in the store's own log, which is told of by itself
    if not any(is_note_signed(note, log.origin, key) for key in _ever_trusted(store)):
        raise Untrusted(f"{what}: not signed by a key that was trusted here")


def _keys_of(log: Log) -> Iterator[PublicKey]:
    """The keys that the log has and had, as far as they are known here."""
    keys = (_key_at(log, size) for size in (0, *_rekeyed_at(log)))
    yield from (log.verifier, *(key for key in keys if key is not None))


def _rekeyed_at(log: Log) -> list[int]:
    names = durable.names_in(log.folder / "rekey")
    return sorted(int(name) for name in names if name.isdigit())


def _ever_trusted(store: Store) -> Iterator[PublicKey]:
    from kvg.store.trusted import read_version

    for _, digest in store.trust_versions():
        yield from (key.public for key in read_version(store, digest).keys)


def _witnesses(store: Store) -> tuple[Witness, ...]:
    """Those who are known here; none where the configuration can't be read, which that tells."""
    from kvg.store.witnesses import configured

    try:
        return configured(store)
    except Corrupt:
        return ()


def _check_receipt(log: Log, path: Path, what: str, witnesses: Sequence[Witness]) -> None:
    """That it proves the place, in this log, of the attestation that it is named after."""
    from kvg.log.entry import AttestationEntry, parse_entry
    from kvg.log.receipts import MAX_RECEIPT_SIZE, check_receipt, parse_receipt

    with durable.translated(path), open(path, "rb", opener=durable.plain) as file:
        receipt = parse_receipt(file.read(MAX_RECEIPT_SIZE + 1), what=what)
    if not log.is_extension_of(receipt.checkpoint.size, receipt.checkpoint.root):
        raise Untrusted(f"{what}: under a checkpoint that is not of the log {log.origin}")
    (raw,) = log.read(receipt.index, receipt.index + 1)
    entry = parse_entry(raw, what=what)
    if not re.fullmatch(r"[0-9a-f]{64}", path.name):
        raise Corrupt(f"{what}: no receipt")
    named = Digest(f"{PREFIX}{path.name}")
    if not isinstance(entry, AttestationEntry) or entry.envelope != named:
        raise Corrupt(f"{what}: not about the attestation {short(named)}")
    key = _key_at(log, receipt.checkpoint.size)
    if key is not None:
        check_receipt(receipt, raw, origin=log.origin, verifier=key, what=what)
    _check_lines(log, receipt.note, what, witnesses)


def _check_seen(log: Log, path: Path, what: str, witnesses: Sequence[Witness]) -> None:
    """That it is an earlier checkpoint of this log, signed by the key that it had then."""
    from kvg.log.checkpoint import MAX_CHECKPOINT_SIZE, open_checkpoint, parse_checkpoint

    with durable.translated(path), open(path, "rb", opener=durable.plain) as file:
        note = file.read(MAX_CHECKPOINT_SIZE + 1)
    seen = parse_checkpoint(note, what=what)
    if not log.is_extension_of(seen.size, seen.root):
        raise Untrusted(f"{what}: not a checkpoint of the log {log.origin}")
    key = _key_at(log, seen.size)
    if key is not None:
        open_checkpoint(note, origin=log.origin, verifier=key, what=what)
    _check_lines(log, note, what, witnesses)


def _check_lines(log: Log, note: bytes, what: str, witnesses: Sequence[Witness]) -> None:
    """That each line by the log, or by a witness who is known here, is signed."""
    from kvg.signing.note import parse_note
    from kvg.store.witnesses import unsigned

    for line in unsigned(log, parse_note(note, what=what), witnesses):
        raise Untrusted(f"{what}: {line.name} did not sign this")
