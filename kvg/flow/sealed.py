"""What a store's index remembers for one user, known again by a secret of that user.

The index may be written by whoever can write the store. What caches files of the store is checked
against them; the fingerprint of a model's weights is not, so it counts only under a seal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvg.digest import keyed_blake3
from kvg.flow.settings import keyring_of

if TYPE_CHECKING:
    from kvg.flow.settings import Settings
    from kvg.store import Store
    from kvg.store.index import Index

SEAL_BYTES = 32


class SealedCache:
    """A ``kvg.model.folder.FingerprintCache`` in an index that others may write."""

    def __init__(self, index: Index, secret: bytes) -> None:
        self._index = index
        self._secret = secret

    def recall(self, key: bytes) -> bytes | None:
        """What this user remembered under ``key``; None for what anybody else put there."""
        held = self._index.recall(key)
        if held is None or held[:SEAL_BYTES] != self._seal(key, held[SEAL_BYTES:]):
            return None
        return held[SEAL_BYTES:]

    def remember(self, key: bytes, value: bytes) -> None:
        """Keep ``value`` under ``key`` (32 bytes)."""
        self._index.remember(key, self._seal(key, value) + value)

    def _seal(self, key: bytes, value: bytes) -> bytes:
        return keyed_blake3(self._secret, (key, value))


def fingerprint_cache(store: Store, settings: Settings) -> SealedCache | None:
    """Where fingerprints of weights are remembered; None where the user can keep no secret."""
    secret = keyring_of(settings).cache_secret()
    return None if secret is None else SealedCache(store.index, secret)
