"""Where logs hold an envelope: what a revocation by a position in one of them is judged by.

A position in another's log is proved by the receipt that came with the envelope and by the copy of
that log, as far as this user's own keys remember to have seen it: the copy alone lies in the
store's folder, where whoever has the revoked key could put a log of the same name. What nobody here
has seen, or can't be read, is no position.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kvg import durable
from kvg.digest import Digest, hex_of
from kvg.errors import Untrusted
from kvg.log.entry import AttestationEntry, parse_entry
from kvg.store.peers import RECEIPTS
from kvg.verify.findings import UNREADABLE

if TYPE_CHECKING:
    from kvg.log.log import Log
    from kvg.store import Store
    from kvg.trust import TrustFile

Elsewhere = Callable[[str], int | None]
"""The index of an envelope in the log of that name; None where that is not proved."""


def counts(trust: TrustFile, keyid: str, elsewhere: Elsewhere) -> bool:
    """Whether a signature by the revoked ``keyid`` counts by a position that ``elsewhere`` says."""
    origins = {place.origin for place in trust.revocations(keyid)}
    return any(
        (index := elsewhere(origin)) is not None and trust.counts(keyid, origin, index)
        for origin in sorted(origins)
    )


def index_in(store: Store, subject: Digest, envelope: Digest, origin: str) -> int | None:
    """Where the log ``origin`` holds ``envelope`` as a statement about ``subject``, as far as that
    is proved here."""
    if origin == store.origin:
        from kvg.store.vouching import vouch

        vouch(store, subject)
        found = (item.index for item in store.attestations(subject) if item.envelope == envelope)
        return next(found, None)
    if origin not in store.peers.origins():
        return None
    try:
        log, n_seen = _as_seen(store, origin)
        index = _told(log, envelope)
        if index >= n_seen:
            return None
        (raw,) = log.read(index, index + 1)
        entry = parse_entry(raw, what=f"log {origin}: entry {index}")
    except UNREADABLE:
        return None
    return index if entry == AttestationEntry(entry.time, subject, envelope) else None


def _as_seen(store: Store, origin: str) -> tuple[Log, int]:
    """The copy of a log, and how many of its entries this user has seen. Raises ``Untrusted``."""
    seen, log = store.peers.remembered(origin, None), store.peers.log(origin)
    if seen is None or log is None or not log.is_extension_of(seen.size, seen.root):
        raise Untrusted(f"log {origin}: not what was seen of it here")
    return log, seen.size


def _told(log: Log, envelope: Digest) -> int:
    """The index that the receipt says, which the entry there then proves."""
    from kvg.log.receipts import MAX_RECEIPT_SIZE, parse_receipt

    path = log.folder / RECEIPTS / hex_of(envelope)
    with durable.translated(path), open(path, "rb", opener=durable.plain) as file:
        return parse_receipt(file.read(MAX_RECEIPT_SIZE + 1), what=str(path)).index
