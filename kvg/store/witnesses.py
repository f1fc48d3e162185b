"""The witnesses whose word counts, and what they said of the store's log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvg.errors import Corrupt, Untrusted

if TYPE_CHECKING:
    from kvg.signing.cosignature import Witness
    from kvg.store.store import Store

WITNESSES_KEY = "store.witnesses"


def configured(store: Store) -> tuple[Witness, ...]:
    """The witnesses of ``store.witnesses``. Raises ``Corrupt``."""
    lines = store.config.words(WITNESSES_KEY)
    if not lines:
        return ()
    from kvg.signing.cosignature import parse_witness

    what = f"{store.config.path}: {WITNESSES_KEY}"
    return tuple(parse_witness(line, what=what) for line in lines)


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
        others = () if note is None else [s for s in note.signatures if s.name != log.origin]
        if name == COSIGNED and data and not others:
            yield Corrupt(f"{what}: without a cosignature", hint=_HINT)
        if note is None or not others:
            continue
        from kvg.signing.cosignature import cosigned_at

        known = {(item.name, item.key_hash): item for item in configured(store)}
        for line in others:
            witness = known.get((line.name, line.key_hash))
            if witness is None:
                yield Untrusted(f"{what}: cosigned by {line.name}, who is no witness", hint=_HINT)
            elif cosigned_at(note, witness) is None:
                yield Untrusted(f"{what}: {line.name} did not sign this", hint=_HINT)


_HINT = "kvg log --cosigned FILE takes up what the witness signed, --witness KEY names a witness"
