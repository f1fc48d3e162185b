"""A set of digests in a fixed few bytes each, for marking what is reachable.

A Bloom filter (https://doi.org/10.1145/362686.362692): what was added is always in it, and of what
was not, about one in thirty million is taken to be. For a collector that is the safe side: it keeps
that much garbage until the next run, which draws another salt.
"""

from __future__ import annotations

import os
import struct

from kvg.digest import Digest, raw_of

BITS_PER_DIGEST = 64
LEAST_BITS = 1 << 16
_PROBES = struct.Struct("<8I")


class Marks:
    """A set of about ``expected`` digests; 8 bytes for each, whatever their number is."""

    def __init__(self, expected: int, *, salt: bytes | None = None) -> None:
        self._n_bits = max(LEAST_BITS, expected * BITS_PER_DIGEST)
        self._bits = bytearray(self._n_bits // 8 + 1)
        self._salts = _PROBES.unpack(os.urandom(32) if salt is None else salt)

    def add(self, digest: Digest) -> None:
        bits, n_bits = self._bits, self._n_bits
        for word, salt in zip(_PROBES.unpack(raw_of(digest)), self._salts, strict=True):
            bit = ((word ^ salt) * n_bits) >> 32
            bits[bit >> 3] |= 1 << (bit & 7)

    def __contains__(self, digest: Digest) -> bool:
        """At 8 places: a digest is spread evenly as it is, the salt only makes each run another."""
        bits, n_bits = self._bits, self._n_bits
        for word, salt in zip(_PROBES.unpack(raw_of(digest)), self._salts, strict=True):
            bit = ((word ^ salt) * n_bits) >> 32
            if not bits[bit >> 3] & (1 << (bit & 7)):
                return False
        return True
