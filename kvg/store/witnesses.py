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
ABOUT_COSIGNED = "log/cosigned"
"""The object of a finding about what witnesses cosigned of the store's own log."""

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


def faults(store: Store) -> Iterator[tuple[str, Corrupt | Untrusted]]:
    """What is wrong with the cosignatures that are kept, each with what it is about: nothing else
    would miss them. Raises ``Corrupt``, ``Untrusted`` where the log can't be read.
    """
    from kvg.log.log import CHECKPOINT, COSIGNED

    log = store.log
    for name, about in ((CHECKPOINT, "log"), (COSIGNED, ABOUT_COSIGNED)):
        try:
            check = _faults_of_checkpoint if name == CHECKPOINT else _faults_of_cosigned
            yield from ((about, fault) for fault in check(store, log, f"log {log.folder}/{name}"))
        except (Corrupt, Untrusted) as error:
            yield about, error


def _faults_of_checkpoint(store: Store, log: Log, what: str) -> Iterator[Corrupt | Untrusted]:
    """What is wrong with the lines beside the log's own, which was looked at when it was opened."""
    from kvg.signing.note import parse_note

    note = parse_note(log.note, what=what)
    if len(note.signatures) > 1:
        yield from _unfounded(store, log, note, what)


def _faults_of_cosigned(store: Store, log: Log, what: str) -> Iterator[Corrupt | Untrusted]:
    from kvg.signing.note import parse_note

    data = log.cosigned
    yield from _lost(store, log, data)
    if data:
        note = parse_note(data, what=what)
        if not cosigners(log, note):
            yield Corrupt(f"{what}: without a cosignature", hint=_HINT)
        yield from _unfounded(store, log, note, what)


def _unfounded(store: Store, log: Log, note: Note, what: str) -> Iterator[Untrusted]:
    """Whoever takes up a cosignature has checked it, so that every line is by a witness who is
    named here."""
    for line in unsigned(log, note, configured(store)):
        yield Untrusted(f"{what}: {line.name} did not sign this", hint=_HINT)
    for line in strangers(log, note, configured(store)):
        yield Untrusted(f"{what}: cosigned by {line.name}, who is no witness", hint=_HINT)


def _lost(store: Store, log: Log, kept: bytes) -> Iterator[Corrupt | Untrusted]:
    """As ``lost``, of the store's own log; the checkpoint itself may show that it was cosigned."""
    from kvg.log.log import CHECKPOINT
    from kvg.signing.note import parse_note

    path, seen = log.folder / CHECKPOINT, None
    if cosigners(log, parse_note(log.note, what=str(path))):
        seen = log.note
    elif store.keyring is not None and store.origin == log.origin:
        path = store.keyring.cosigned_path(log.origin, log.origin)
        seen = store.keyring.seen_cosigned(log.origin, log.origin)
    yield from lost(log, kept, seen, hint=f"kvg log --cosigned {path} takes it up again")


def lost(log: Log, kept: bytes, seen: bytes | None, *, hint: str) -> Iterator[Corrupt | Untrusted]:
    """That what witnesses said of ``log`` was ``seen``, and that ``kept``, empty for nothing, is
    neither that nor newer.
    """
    from kvg.log.checkpoint import parse_checkpoint
    from kvg.log.log import COSIGNED
    from kvg.log.rekey import open_then
    from kvg.signing.note import parse_note

    what = f"log {log.folder}/{COSIGNED}"
    try:
        said = open_then(log, seen or b"", what=what)
    except (Corrupt, Untrusted):
        return
    by = ", ".join(cosigners(log, parse_note(seen or b"", what=what)))
    told = f"size {said.size}, cosigned by {by}, was seen here"
    if not log.is_extension_of(said.size, said.root):
        yield Untrusted(f"{what}: rolled back or forked: {told}", hint=hint)
    elif not kept or parse_checkpoint(kept, what=what).size < said.size:
        yield Corrupt(f"{what}: {'out of date' if kept else 'missing'}: {told}", hint=hint)


def cosigners(log: Log, note: Note) -> tuple[str, ...]:
    """Who signed ``note`` beside the log, by name."""
    names = (line.name for line in note.signatures)
    return tuple(dict.fromkeys(name for name in names if name not in (log.origin, SUM_NAME)))


def remember(store: Store) -> None:
    """Keep with the user's keys what witnesses said of the store's log: should it be lost,
    ``faults`` tells of it. Raises ``Corrupt``, ``Untrusted``."""
    log, keyring = store.log, store.keyring
    data = log.cosigned
    if not data or keyring is None or store.origin != log.origin:
        return
    if keyring.seen_cosigned(log.origin, log.origin) != data:
        keyring.keep_cosigned(log.origin, log.origin, data)


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
