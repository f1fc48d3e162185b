"""What is said about an artifact and counts: for showing it, not for relying on it.

A damaged or foreign envelope is passed over here; ``kvg verify`` is what reports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvg.digest import Digest, short
from kvg.errors import Corrupt, Untrusted
from kvg.verify.judgement import Judgement, amount, open_attestation

if TYPE_CHECKING:
    from kvg.log.log import Log
    from kvg.store import Store
    from kvg.trust import TrustFile
    from kvg.verify.judgement import Opened


def attested(
    store: Store, subject: Digest, trust: TrustFile | None = None, log: Log | None = None
) -> Judgement:
    """What the envelopes of ``subject`` amount to that can be read, taken together.

    ``trust`` and ``log`` are the store's, where the caller has them.
    """
    trust, log, what = trust or store.trust, log or store.log, short(subject)
    opened: list[Opened] = []
    for item in store.attestations(subject):
        try:
            opened.append(open_attestation(store, subject, item, trust, log, what=what))
        except (Corrupt, Untrusted):
            continue
    return amount(opened, trust)
