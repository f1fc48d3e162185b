"""The witnesses whose word counts, and what they said of the store's log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kvg.errors import Corrupt, Untrusted

if TYPE_CHECKING:
    from kvg.log.log import Log
    from kvg.signing.cosignature import Witness
    from kvg.signing.note import Note, NoteSignature
    from kvg.store.store import Store

WITNESSES_KEY = "store.witnesses"
SUM_NAME = "kvg.sum"
_SUM_LINE = f"\u2014 {SUM_NAME} ".encode()


def configured(store: Store) -> tuple[Witness, ...]:
    """The witnesses of ``store.witnesses``. Raises ``Corrupt``."""
    lines = store.config.words(WITNESSES_KEY)
    if not lines:
        return ()
    from kvg.signing.cosignature import parse_witness

    what = f"{store.config.path}: {WITNESSES_KEY}"
    return tuple(parse_witness(line, what=what) for line in lines)


def with_sum(note: bytes) -> bytes:
    """``note`` with its own SHA-256 as a last line, which readers of notes pass over.

    So a copy of a stranger's word, which nobody here can check, is known to be what came.
    """
    from kvg.digest import sha256_bytes
    from kvg.signing.note import HASH_SIZE, NoteSignature, encode_signature

    if has_sum(note):
        note = b"".join(note.splitlines(keepends=True)[:-1])
    digest = sha256_bytes(note)
    return note + encode_signature(NoteSignature(SUM_NAME, digest[:HASH_SIZE], digest))


def has_sum(note: bytes) -> bool:
    """Whether ``note`` ends with a checksum, right or wrong; copies of before have none."""
    return note.splitlines()[-1:] != [] and note.splitlines()[-1].startswith(_SUM_LINE)


def faults(store: Store) -> Iterator[Corrupt | Untrusted]:
    """What is wrong with the cosignatures that are kept: nothing else would miss them.

    Whoever takes one up has checked it, so that every line is by a witness who is named here.
    Raises ``Corrupt``, ``Untrusted``.
    """
    from kvg.log.log import CHECKPOINT, COSIGNED
    from kvg.signing.note import parse_note

    log = store.log
    for name, data in ((CHECKPOINT, log.note), (COSIGNED, log.cosigned)):
        what = f"log {log.folder}: {name}"
        note = parse_note(data, what=what) if data else None
        if note is None or (name == CHECKPOINT and len(note.signatures) == 1):
            continue  # the one was looked at when the log was opened
        if name == COSIGNED and all(line.name == log.origin for line in note.signatures):
            yield Corrupt(f"{what}: without a cosignature", hint=_HINT)
        for line in unsigned(log, note, configured(store)):
            yield Untrusted(f"{what}: {line.name} did not sign this", hint=_HINT)
        for line in strangers(log, note, configured(store)):
            yield Untrusted(f"{what}: cosigned by {line.name}, who is no witness", hint=_HINT)


def strangers(log: Log, note: Note, witnesses: Iterable[Witness]) -> Iterator[NoteSignature]:
    """The lines of ``note`` that are neither the log's own nor by one of ``witnesses``."""
    known = {(item.name, item.key_hash) for item in witnesses}
    for line in note.signatures:
        if line.name != log.origin and (line.name, line.key_hash) not in known:
            yield line


def unsigned(log: Log, note: Note, witnesses: Iterable[Witness]) -> Iterator[NoteSignature]:
    """The lines of ``note`` by the log, or by one of ``witnesses``, that their key did not sign.

    Under a change of key the log signs with two; one that is not known here is not judged.
    """
    from kvg.signing.cosignature import cosigned_at

    known = {(item.name, item.key_hash): item for item in witnesses}
    for line in note.signatures:
        witness = known.get((line.name, line.key_hash))
        if line.name == log.origin:
            if not _is_own(log, note, line):
                yield line
        elif witness is not None and cosigned_at(note, witness) is None:
            yield line


def _is_own(log: Log, note: Note, line: NoteSignature) -> bool:
    from kvg.log.checkpoint import parse_checkpoint
    from kvg.log.rekey import key_at
    from kvg.signing.note import Note, encode_signature, is_note_signed

    only = Note(note.text, (line,))
    data = note.text.encode("utf-8") + b"\n" + encode_signature(line)
    size = parse_checkpoint(data, what=log.origin).size
    for at in (size, max(size - 1, 0)):
        try:
            key = key_at(log, at)
        except Untrusted:
            return True
        if is_note_signed(only, log.origin, key):
            return True
    return False


_HINT = "kvg log --cosigned FILE takes up what the witness signed, --witness KEY names a witness"
