"""The tables of the index, as the fold over the log fills them: in LMDB or in memory."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Protocol

META = "meta"
REFS = "refs"
HISTORY = "history"
ATTESTATIONS = "attestations"
PINS = "pins"
TRUST = "trust"
REVOKED = "revoked"
FORGOTTEN = "forgotten"
PREREGISTERED = "preregistered"
TOKENS = "tokens"
PREFIXES = "prefixes"
FAMILIES = "families"
OUTLINES = "outlines"
REJECTED = "rejected"
FINGERPRINTS = "fingerprints"

FOLDED = (
    META,
    REFS,
    HISTORY,
    ATTESTATIONS,
    PINS,
    TRUST,
    REVOKED,
    FORGOTTEN,
    PREREGISTERED,
    TOKENS,
    PREFIXES,
    FAMILIES,
    OUTLINES,
    REJECTED,
)
"""Tables that are wholly recomputed from files."""

EXACT = (
    REFS,
    HISTORY,
    ATTESTATIONS,
    PINS,
    TRUST,
    REVOKED,
    FORGOTTEN,
    PREREGISTERED,
)
"""Tables that the log alone decides; the others depend on which objects are still there."""

ALL = (*FOLDED, FINGERPRINTS)

MAX_KEY_BYTES = 511


class Tables(Protocol):
    """One consistent view of the tables. Keys and values are bytes; keys up to 511 bytes."""

    def get(self, table: str, key: bytes) -> bytes | None:
        """The value of ``key``, None when there is none."""

    def scan(self, table: str, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Every key that begins with ``prefix``, ascending, with its value."""


class WritableTables(Tables, Protocol):
    """Tables inside one write: all of it becomes visible at once, or none."""

    def put(self, table: str, key: bytes, value: bytes) -> None:
        """Set ``key``."""

    def delete(self, table: str, key: bytes) -> None:
        """Remove ``key``; one that is not there is no failure."""


class MemoryTables:
    """Tables in memory: for a store that can't be written to."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[bytes, bytes]] = {name: {} for name in ALL}
        self._keys: dict[str, list[bytes]] = {name: [] for name in ALL}

    def get(self, table: str, key: bytes) -> bytes | None:
        return self._tables[table].get(key)

    def scan(self, table: str, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        rows, keys = self._tables[table], self._keys[table]
        at = bisect_left(keys, prefix)
        while at < len(keys) and keys[at].startswith(prefix):
            key = keys[at]
            yield key, rows[key]
            at += 1
            if at > len(keys) or keys[at - 1] != key:  # written to meanwhile
                at = bisect_right(keys, key)

    def put(self, table: str, key: bytes, value: bytes) -> None:
        rows = self._tables[table]
        if key not in rows:
            insort(self._keys[table], key)
        rows[key] = value

    def delete(self, table: str, key: bytes) -> None:
        if self._tables[table].pop(key, None) is not None:
            keys = self._keys[table]
            del keys[bisect_left(keys, key)]
