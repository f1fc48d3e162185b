"""A new key for the store's log, in force everywhere or nowhere.

Order, each durable before the next: the new key beside the old one in the user's folder, the entry
under a checkpoint that both signed, the log's verifier line, the store's pin, the user's key. A
rekey that was cut short is finished by the next publication.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvg.errors import NotFound
from kvg.frozen import frozen
from kvg.store.layout import LOG_KEY

if TYPE_CHECKING:
    from kvg.store.store import Store


@frozen
class Rekeyed:
    """The verifier lines before and after, and the entry's index in the log."""

    origin: str
    previous: str
    verifier: str
    index: int


def rekey(store: Store, *, now: int) -> Rekeyed:
    """Give the store's log a new key. Raises ``NotFound`` without the old one."""
    from kvg.log.entry import RekeyEntry, encode_entry
    from kvg.signing.note import encode_verifier

    with store.lock.exclusive():
        finish(store)
        log = store.log
        old = store.log_key()
        if store.keyring is None:
            raise NotFound(f"no keys at hand for the log {log.origin}")
        new = store.keyring.next_log_key(log.origin)
        line = encode_verifier(log.origin, new.public)
        previous = encode_verifier(log.origin, old.public)
        index = log.rekey(encode_entry(RekeyEntry(now, line)), old, new)
        finish(store)
        store.index.update()
        return Rekeyed(log.origin, previous, line, index)


def finish(store: Store) -> None:
    """Bring the log's present key into force wherever it is not. Call it under the lock."""
    from kvg.signing.note import encode_verifier

    if not (store.root / "log" / "rekey").is_dir():
        return
    log = store.log
    log.finish_rekey()
    line = encode_verifier(log.origin, log.verifier)
    if store.config.text(LOG_KEY) != line:
        store.config.set(LOG_KEY, line)
    if store.keyring is not None:
        store.keyring.take_next_log_key(log.origin, log.verifier)
