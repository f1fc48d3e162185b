"""``kvg key rekey``: a new key for the log of a store."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kvg.flow.records.keys import Rekeyed

if TYPE_CHECKING:
    from kvg.flow.settings import Settings
    from kvg.store import Store


def rekey(store: Store, settings: Settings) -> Rekeyed:
    """Replace the key that signs the store's log; the change is signed by both.

    Raises ``NotFound`` when the old key is not at hand.
    """
    from kvg.signing.note import encode_verifier
    from kvg.store.rekey import rekey as replace_key

    log = store.log
    if settings.tell_dry_run():
        line = encode_verifier(log.origin, store.log_key().public)
        return Rekeyed(log.origin, line, None, None)
    done = replace_key(store, now=int(time.time()))
    return Rekeyed(done.origin, done.previous, done.verifier, done.index)
