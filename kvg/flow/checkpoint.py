"""``kvg log --checkpoint``: what the log signed last, and the witnesses who cosigned it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvg.errors import Untrusted
from kvg.flow.records.stores import Cosignature, LogCheckpoint
from kvg.store.witnesses import WITNESSES_KEY, configured

if TYPE_CHECKING:
    from kvg.flow.settings import Settings
    from kvg.signing.cosignature import Witness
    from kvg.signing.note import Note
    from kvg.store import Store


def checkpoint(store: Store) -> LogCheckpoint:
    """The checkpoint of the store's log as it stands.

    ``witnesses`` are those of ``store.witnesses`` whose cosignature is on it, or on the newest that
    was cosigned. Raises ``Corrupt``, ``Untrusted``.
    """
    from kvg.signing.note import encode_verifier

    log = store.log
    witnesses = configured(store)
    return LogCheckpoint(
        origin=log.origin,
        size=log.size,
        root=log.root.hex(),
        verifier=encode_verifier(log.origin, log.verifier),
        note=log.note.decode("utf-8"),
        witnesses=_cosignatures(log.cosigned, witnesses),
    )


def add_cosignatures(
    store: Store, settings: Settings, data: bytes, given: Sequence[str]
) -> LogCheckpoint:
    """Take up the cosignatures in ``data``: a cosigned checkpoint, or a witness's bare lines.

    ``given`` are verifier lines of witnesses, trusted from now on beside those of
    ``store.witnesses``. Raises ``Untrusted`` when none of them signed this log's.
    """
    from kvg.signing.cosignature import cosigned_at, encode_witness, parse_witness
    from kvg.signing.note import parse_note

    new = [parse_witness(line, what=f"--witness {line[:40]}") for line in given]
    witnesses = list(dict.fromkeys([*configured(store), *new]))
    with store.lock.exclusive():
        log = store.log
        is_bare = data.startswith("— ".encode())
        base = log.note if is_bare else data
        note = parse_note(base + data if is_bare else data, what="cosigned checkpoint")
        mine = {w.key_hash: w for w in witnesses if cosigned_at(note, w) is not None}
        found = [s for s in note.signatures if s.name in {w.name for w in mine.values()}]
        found = [s for s in found if s.key_hash in mine]
        if not found:
            raise Untrusted(
                "cosigned checkpoint: no cosignature by a witness that is trusted here",
                hint="--witness KEY names one; config get store.witnesses lists them",
            )
        if not settings.tell_dry_run():
            log.add_cosignatures(base, found)
            if new:
                store.config.set(WITNESSES_KEY, tuple(map(encode_witness, witnesses)))
    return checkpoint(store)


def _cosignatures(data: bytes, witnesses: Sequence[Witness]) -> tuple[Cosignature, ...]:
    from kvg.log.checkpoint import parse_checkpoint
    from kvg.signing.note import parse_note

    if not data:
        return ()
    size = parse_checkpoint(data, what="cosigned checkpoint").size
    note = parse_note(data, what="cosigned checkpoint")
    return tuple(_each(note, witnesses, size))


def _each(note: Note, witnesses: Sequence[Witness], size: int) -> list[Cosignature]:
    from kvg.signing.cosignature import cosigned_at, encode_witness

    found = [(witness, cosigned_at(note, witness)) for witness in witnesses]
    return [
        Cosignature(witness.name, encode_witness(witness), time, size)
        for witness, time in found
        if time is not None
    ]
