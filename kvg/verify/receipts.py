"""Receipts of what was fetched: each attestation that came from another's log has its proof here.

What came and what was made here is told by the store's own log: a fetch moves the ref that says
what the remote had, in one step with the attestations, before any ref of one's own stands for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from kvg.digest import Digest, hex_of, short
from kvg.errors import Corrupt, Incompatible, Untrusted
from kvg.frozen import frozen
from kvg.log.entry import AttestationEntry, RefEntry, parse_entry
from kvg.store.peers import FOLDER, RECEIPTS
from kvg.verify.findings import Finding
from kvg.verify.strays import REPAIR

if TYPE_CHECKING:
    from kvg.store import Store

_ATTESTATION, _REF = b'"type":"attestation"', b'"type":"ref"'
"""What the bytes of such an entry hold, and no other's: a quote in a value is escaped."""


@frozen
class LostReceipt:
    """That an envelope is at ``index`` of the log ``origin``, of which no proof is kept."""

    origin: str
    index: int
    envelope: Digest

    @property
    def name(self) -> str:
        """The file that it was, by its name in the store's folder."""
        return f"{FOLDER}/{self.origin}/{RECEIPTS}/{hex_of(self.envelope)}"

    @property
    def finding(self) -> Finding:
        """It, as a fault."""
        text = f"{self.name}: missing: the receipt of {short(self.envelope)}"
        return Finding(Corrupt.code, Corrupt.kind, self.name, text, REPAIR)


def lost_receipts(store: Store) -> tuple[LostReceipt, ...]:
    """Each receipt that is gone, once, of the first log that has the entry. Copies that can't be
    read tell of none. Raises ``Corrupt``, ``Untrusted`` where the store's own log can't be read."""
    origins = store.peers.origins()
    came = set(_that_came(store)) if origins else set()
    lost: dict[Digest, LostReceipt] = {}
    for origin in origins if came else ():
        folder = store.root / FOLDER / origin / RECEIPTS
        for index, envelope in _attested_in(store, origin):
            if envelope in came and (folder / hex_of(envelope)).exists():
                came.discard(envelope)
            elif envelope in came:
                lost.setdefault(envelope, LostReceipt(origin, index, envelope))
    return tuple(item for envelope, item in lost.items() if envelope in came)


def restore_receipts(store: Store, lost: tuple[LostReceipt, ...]) -> Iterator[str]:
    """Make them anew from the copies of the logs; yields the name of each."""
    for item in lost:
        log = store.peers.log(item.origin)
        if log is not None:
            store.peers.keep_receipts(item.origin, [(item.envelope, log.receipt(item.index))])
            yield item.name


def _that_came(store: Store) -> Iterator[Digest]:
    """The envelopes that were logged here before anything but a fetch had named their artifact."""
    waiting: dict[Digest, list[Digest]] = {}
    named: set[Digest] = set()
    for index, raw in enumerate(store.log.read()):
        if _ATTESTATION not in raw and _REF not in raw:
            continue
        entry = parse_entry(raw, what=f"log entry {index}")
        if isinstance(entry, AttestationEntry) and entry.subject not in named:
            waiting.setdefault(entry.subject, []).append(entry.envelope)
        elif isinstance(entry, RefEntry) and entry.digest is not None:
            if entry.digest not in named and store.is_tracking(entry.name):
                yield from waiting.get(entry.digest, ())
            named.add(entry.digest)
            waiting.pop(entry.digest, None)


def _attested_in(store: Store, origin: str) -> Iterator[tuple[int, Digest]]:
    """(index, envelope) of each attestation in the copy of a log, as far as it can be read."""
    with suppress(Corrupt, Incompatible, Untrusted):
        log = store.peers.log(origin)
        for index, raw in enumerate(log.read() if log is not None else ()):
            if _ATTESTATION in raw:
                entry = parse_entry(raw, what=f"log {origin}: entry {index}")
                if isinstance(entry, AttestationEntry):
                    yield index, entry.envelope
