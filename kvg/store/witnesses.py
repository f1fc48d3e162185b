"""The witnesses whose word counts, and what they said of the store's log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
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
ABOUT_WORDS = "log/witnessed/"
"""The objects of findings about what witnesses cosigned of the store's own log: the newest of all,
and what the names of the words of each begin with."""

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


def is_about_words(name: str) -> bool:
    """Whether ``name`` is the object of a finding about what witnesses cosigned."""
    return name == ABOUT_COSIGNED or name.startswith(ABOUT_WORDS)


def has_sum(note: bytes) -> bool:
    """Whether ``note`` ends with a checksum, right or wrong; copies of before have none."""
    return note.splitlines()[-1:] != [] and note.splitlines()[-1].startswith(_SUM_LINE)


def faults(store: Store) -> Iterator[tuple[str, Corrupt | Untrusted]]:
    """What is wrong with the cosignatures that are kept, each with what it is about: nothing else
    would miss them. Raises ``Corrupt``, ``Untrusted`` where the log can't be read.
    """
    from kvg.log.log import CHECKPOINT, COSIGNED

    log = store.log
    for name in (CHECKPOINT, COSIGNED, *log.word_names()):
        about = "log" if name == CHECKPOINT else f"log/{name}"
        check = _CHECKS.get(name, _faults_of_word)
        try:
            for fault in check(store, log, f"log {log.folder}/{name}"):
                yield about, fault
        except (Corrupt, Untrusted) as error:
            yield about, error
    for witness in configured(store):
        yield from _lost_word(store, log, witness)


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


def _faults_of_word(store: Store, log: Log, what: str) -> Iterator[Corrupt | Untrusted]:
    """What is wrong with the word of one witness, which its name says whose it is."""
    from kvg.log.log import WITNESSED, word_name
    from kvg.signing.note import parse_note

    name = f"{WITNESSED}/{what.rpartition('/')[2]}"
    data = log.open_word(name)
    note = parse_note(data, what=what)
    mine = [line for line in note.signatures if line.name != log.origin]
    if len(mine) != 1 or word_name(mine[0].name, mine[0].key_hash) != name:
        yield Corrupt(f"{what}: not the word of the witness that its name is of", hint=_HINT)
    yield from _unfounded(store, log, note, what)


def _lost_word(
    store: Store, log: Log, witness: Witness
) -> Iterator[tuple[str, Corrupt | Untrusted]]:
    """As ``_lost``, of one witness: that of it an older word is kept than was seen, or none."""
    from kvg.log.log import word_name

    if store.keyring is None or store.origin != log.origin:
        return
    name = word_name(witness.name, witness.key_hash)
    seen = store.keyring.seen_cosigned(log.origin, _remembered(log, name))
    if seen is not None:
        path = store.keyring.cosigned_path(log.origin, _remembered(log, name))
        hint = f"kvg log --cosigned {path} takes it up again"
        with suppress(Corrupt, Untrusted):  # a damaged one is told as such
            for fault in lost(log, _newest_with(log, witness), seen, hint=hint, name=name):
                yield f"log/{name}", fault


def _newest_with(log: Log, witness: Witness) -> bytes:
    """The later of the two checkpoints that may hold the word of ``witness``."""
    from kvg.log.checkpoint import parse_checkpoint
    from kvg.signing.cosignature import cosigned_at
    from kvg.signing.note import parse_note

    kept = (log.cosigned, log.word_of(witness.name, witness.key_hash))
    notes = [data for data in kept if data]
    mine = [
        data
        for data in notes
        if cosigned_at(parse_note(data, what=witness.name), witness) is not None
    ]
    return max(mine, key=lambda data: parse_checkpoint(data, what=witness.name).size, default=b"")


def remembered_word(store: Store, name: str) -> bytes | None:
    """What the user saw last of the file ``name`` of the store's log; None unless it is a word on
    this very log. Raises ``Corrupt``, ``Untrusted`` where that can't be read."""
    from kvg.log.log import COSIGNED
    from kvg.log.rekey import open_then

    log, keyring = store.log, store.keyring
    if keyring is None or store.origin != log.origin:
        return None
    known = log.origin if name == COSIGNED else _remembered(log, name)
    seen = keyring.seen_cosigned(log.origin, known)
    if seen is None:
        return None
    try:
        said = open_then(log, seen, what=name)
    except (Corrupt, Untrusted):
        return None
    return seen if log.is_extension_of(said.size, said.root) else None


def _remembered(log: Log, name: str) -> str:
    """What a word is called with the user's keys."""
    return f"{log.origin}.{name.rpartition('/')[2]}"


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


def lost(
    log: Log, kept: bytes, seen: bytes | None, *, hint: str, name: str = "cosigned"
) -> Iterator[Corrupt | Untrusted]:
    """That what witnesses said of ``log`` was ``seen``, and that ``kept``, empty for nothing, is
    neither that nor newer.
    """
    from kvg.log.checkpoint import parse_checkpoint
    from kvg.log.rekey import open_then
    from kvg.signing.note import parse_note

    what = f"log {log.folder}/{name}"
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
    if keyring is None or store.origin != log.origin:
        return
    words = {_remembered(log, name): log.open_word(name) for name in log.word_names()}
    for name, data in {log.origin: log.cosigned, **words}.items():
        if data and keyring.seen_cosigned(log.origin, name) != data:
            keyring.keep_cosigned(log.origin, name, data)


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


_CHECKS = {"checkpoint": _faults_of_checkpoint, "cosigned": _faults_of_cosigned}
_HINT = "kvg log --cosigned FILE takes up what the witness signed, --witness KEY names a witness"
