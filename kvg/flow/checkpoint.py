"""``kvg log --checkpoint``: what the log signed last, and the witnesses who cosigned it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvg.errors import Untrusted
from kvg.flow.records.stores import Cosignature, LogCheckpoint
from kvg.store.witnesses import WITNESSES_KEY, configured, remember

if TYPE_CHECKING:
    from kvg.flow.settings import Settings
    from kvg.log.log import Log
    from kvg.signing.cosignature import Witness
    from kvg.signing.note import Note, NoteSignature
    from kvg.store import Store

CLOCK_SLACK_S = 600
"""How far a witness's clock may be ahead of this machine's before that is told."""


def checkpoint(store: Store) -> LogCheckpoint:
    """The checkpoint of the store's log as it stands.

    ``witnesses`` are those of ``store.witnesses`` who cosigned it or an earlier one.
    Raises ``Corrupt``, ``Untrusted``.
    """
    from kvg.signing.note import encode_verifier

    log, said = store.log, cosignatures(store)
    return LogCheckpoint(
        origin=log.origin,
        size=log.size,
        root=log.root.hex(),
        verifier=encode_verifier(log.origin, log.verifier),
        note=log.note.decode("utf-8"),
        witnesses=said,
        silent=unheard(configured(store), said),
    )


def add_cosignatures(
    store: Store, settings: Settings, data: bytes, given: Sequence[str]
) -> LogCheckpoint:
    """Take up the cosignatures in ``data``: a cosigned checkpoint, or a witness's bare lines.

    ``given`` are verifier lines of witnesses, trusted from now on beside those of
    ``store.witnesses``. Of two by one witness on one checkpoint the newer, by its own word, is
    kept. Raises ``Untrusted`` when none of them signed this log's.
    """
    from kvg.signing.cosignature import encode_witness, parse_witness
    from kvg.signing.note import parse_note

    new = [parse_witness(line, what=f"--witness {line[:40]}") for line in given]
    witnesses = list(dict.fromkeys([*configured(store), *new]))
    with store.lock.exclusive():
        log = store.log
        is_bare = data.startswith("— ".encode())
        base = log.note if is_bare else data
        note = parse_note(base + data if is_bare else data, what="cosigned checkpoint")
        found = _newest_each(note, witnesses)
        if not found:
            raise Untrusted(
                "cosigned checkpoint: no cosignature by a witness that is trusted here",
                hint="--witness KEY names one; config get store.witnesses lists them",
            )
        _warn_of_clocks(settings, found)
        if not settings.tell_dry_run():
            log.add_cosignatures(base, _newest_each(_with_kept(note, log), witnesses))
            remember(store)
            if new:
                store.config.set(WITNESSES_KEY, tuple(map(encode_witness, witnesses)))
    return checkpoint(store)


def trust_witnesses(store: Store, settings: Settings, given: Sequence[str]) -> LogCheckpoint:
    """Trust the witnesses of the verifier lines ``given`` from now on.

    Raises ``Corrupt``, ``Incompatible`` for a line that is none.
    """
    from kvg.signing.cosignature import encode_witness, parse_witness

    new = [parse_witness(line, what=f"--witness {line[:40]}") for line in given]
    with store.lock.exclusive():
        known = configured(store)
        wanted = tuple(dict.fromkeys([*known, *new]))
        if not settings.tell_dry_run() and wanted != known:
            store.config.set(WITNESSES_KEY, tuple(map(encode_witness, wanted)))
    return checkpoint(store)


def _newest_each(note: Note, witnesses: Sequence[Witness]) -> list[NoteSignature]:
    """The newest cosignature on ``note`` of each of the witnesses that signed it."""
    from kvg.signing.cosignature import cosigned_at, time_of

    found = []
    for witness in witnesses:
        newest = cosigned_at(note, witness)
        key = (witness.name, witness.key_hash)
        mine = [s for s in note.signatures if (s.name, s.key_hash) == key]
        found += [s for s in mine if newest is not None and time_of(s) == newest][:1]
    return found


def _with_kept(note: Note, log: Log) -> Note:
    """``note`` with the cosignatures too that are kept of the same checkpoint."""
    from dataclasses import replace

    from kvg.signing.note import parse_note

    kept = parse_note(log.cosigned, what="cosigned checkpoint") if log.cosigned else note
    if kept.text != note.text:
        return note
    return replace(note, signatures=tuple(dict.fromkeys((*note.signatures, *kept.signatures))))


def _warn_of_clocks(settings: Settings, found: Sequence[NoteSignature]) -> None:
    from kvg.signing.cosignature import time_of

    for item in found:
        ahead = time_of(item) - int(time.time())
        if ahead > CLOCK_SLACK_S:
            settings.report.warning(
                f"witness {item.name}: says that it signed {ahead:,} s from now: its clock or "
                "this machine's is wrong"
            )


def cosignatures(store: Store) -> tuple[Cosignature, ...]:
    """The newest word of each of the witnesses of ``store.witnesses``, with the size it is about.

    Raises ``Corrupt``, ``Untrusted``.
    """
    found = (newest_word(store.log, witness) for witness in configured(store))
    return tuple(word for word in found if word is not None)


def newest_word(log: Log, witness: Witness) -> Cosignature | None:
    """What ``witness`` cosigned last of what is kept; None when nothing."""
    from kvg.log.checkpoint import parse_checkpoint
    from kvg.signing.cosignature import cosigned_at, encode_witness
    from kvg.signing.note import parse_note

    words: list[Cosignature] = []
    for data in (log.cosigned, log.word_of(witness.name, witness.key_hash)):
        time = cosigned_at(parse_note(data, what=witness.name), witness) if data else None
        if time is not None:
            size = parse_checkpoint(data, what=witness.name).size
            words.append(Cosignature(witness.name, encode_witness(witness), time, size))
    return max(words, key=lambda word: (word.size, word.time), default=None)


def unheard(witnesses: Sequence[Witness], said: Sequence[Cosignature]) -> tuple[str, ...]:
    """The names of those ``witnesses`` that none of the words ``said`` is by."""
    from kvg.signing.cosignature import encode_witness

    heard = {item.verifier for item in said}
    return tuple(item.name for item in witnesses if encode_witness(item) not in heard)
