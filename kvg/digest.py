"""Digests: the only home of SHA-256, BLAKE3 and SHAKE-256.

A digest is ``sha256:`` + 64 lower-case hex of the exact raw bytes.

``hashlib`` loads OpenSSL, which takes longer than all that a small command hashes: what is small
goes through the interpreter's own SHA-256 until something large makes OpenSSL worth its while.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, NewType, TypeAlias, TypeGuard

from kvg.errors import Corrupt, UsageError

if TYPE_CHECKING:
    from hashlib import _Hash
    from types import ModuleType

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes in memory, in any of Python's three spellings."""

Digest = NewType("Digest", str)
"""``sha256:`` + 64 lower-case hex. Made only by the functions of this module."""

PREFIX = "sha256:"
_HEX = frozenset("0123456789abcdef")
_WHOLE = re.compile(PREFIX + "[0-9a-f]{64}").fullmatch
_SMALL_BYTES = 4096


def _hasher_for(size_bytes: int) -> _Hash:
    """A SHA-256 to feed about ``size_bytes`` bytes."""
    if size_bytes > _SMALL_BYTES or "hashlib" in sys.modules:
        from hashlib import sha256

        return sha256()
    make: Callable[[], _Hash] = _builtin().sha256
    return make()


@cache
def _builtin() -> ModuleType:
    """The interpreter's own SHA-256, whose module changed its name; else ``hashlib``."""
    name = "_sha256" if sys.version_info < (3, 12) else "_sha2"
    try:
        return import_module(name)
    except ImportError:
        return import_module("hashlib")


def sha256_bytes(data: Buffer) -> bytes:
    """The 32 raw bytes of the SHA-256 of ``data``."""
    hasher = _hasher_for(len(data))
    hasher.update(data)
    return hasher.digest()


def sha256_each(items: Iterable[bytes]) -> list[bytes]:
    """``sha256_bytes`` of many that are small."""
    make = _builtin().sha256
    return [make(item).digest() for item in items]


def sha256(data: Buffer) -> Digest:
    """The digest of ``data``."""
    return Digest(PREFIX + sha256_bytes(data).hex())


def sha256_all(parts: Iterable[Buffer]) -> Digest:
    """The digest of the concatenation of ``parts``, without joining them in memory."""
    stream = Sha256Stream()
    for part in parts:
        stream.update(part)
    return stream.digest()


class Sha256Stream:
    """A running SHA-256: ``update`` with bytes, ``digest`` at the end, ``copy`` to branch."""

    __slots__ = ("_hasher", "_held")

    def __init__(self) -> None:
        self._hasher: _Hash | None = None
        self._held = b""

    def update(self, data: Buffer) -> None:
        if self._hasher is None:
            if len(self._held) + len(data) <= _SMALL_BYTES:
                self._held += bytes(data)
                return
            self._hasher = _hasher_for(_SMALL_BYTES + 1)
            self._hasher.update(self._held)
        self._hasher.update(data)

    def digest(self) -> Digest:
        if self._hasher is None:
            return sha256(self._held)
        return Digest(PREFIX + self._hasher.hexdigest())

    def copy(self) -> Sha256Stream:
        other = Sha256Stream()
        other._held = self._held
        other._hasher = None if self._hasher is None else self._hasher.copy()
        return other


def blake3_bytes(data: Buffer, *, threads: int = 1) -> bytes:
    """The 32 raw bytes of the BLAKE3-256 of ``data``; ``threads`` = 0 uses every core."""
    import blake3

    return blake3.blake3(data, max_threads=threads or blake3.blake3.AUTO).digest()


def keyed_blake3(key: bytes, parts: Iterable[Buffer]) -> bytes:
    """The 32 bytes of the BLAKE3 of ``parts`` under a key of 32 bytes: who has it made them."""
    import blake3

    hasher = blake3.blake3(key=key)
    for part in parts:
        hasher.update(part)
    return hasher.digest()


def blake3_hex(data: Buffer, *, threads: int = 1) -> str:
    """The BLAKE3-256 of ``data`` as 64 lower-case hex."""
    return blake3_bytes(data, threads=threads).hex()


class Blake3Stream:
    """A running BLAKE3-256: ``update`` with bytes, ``digest`` (32 raw bytes) at the end."""

    __slots__ = ("_hasher",)

    def __init__(self) -> None:
        import blake3

        self._hasher = blake3.blake3()

    def update(self, data: Buffer) -> None:
        self._hasher.update(data)

    def digest(self) -> bytes:
        return self._hasher.digest()


def blake3_all(parts: Iterable[Buffer]) -> str:
    """The BLAKE3-256 of the concatenation of ``parts`` as hex."""
    import blake3

    hasher = blake3.blake3()
    for part in parts:
        hasher.update(part)
    return hasher.hexdigest()


def shake256(label: bytes, size_bytes: int) -> bytes:
    """``size_bytes`` of SHAKE-256 output for ``label``: the source of every reproducible input."""
    import hashlib

    return hashlib.shake_256(label).digest(size_bytes)


def from_raw(raw: bytes) -> Digest:
    """The digest whose 32 raw bytes are ``raw``."""
    return Digest(PREFIX + raw.hex())


def raw_of(digest: Digest) -> bytes:
    """The 32 raw bytes of ``digest``."""
    return bytes.fromhex(digest[len(PREFIX) :])


def hex_of(digest: Digest) -> str:
    """The 64 hex digits of ``digest``."""
    return digest[len(PREFIX) :]


def short(digest: str) -> str:
    """``sha256:`` and the first 6 hex digits, for people."""
    return digest[: len(PREFIX) + 6]


def is_digest(text: object) -> TypeGuard[Digest]:
    """Whether ``text`` is a whole digest in its one spelling."""
    return isinstance(text, str) and _WHOLE(text) is not None


def parse_digest(text: object, *, what: str) -> Digest:
    """``text`` as a digest, for stored bytes. Raises ``Corrupt`` naming ``what``."""
    if not is_digest(text):
        raise Corrupt(f"{what}: not a digest: {str(text)[:80]!r}", hint="kvg fsck")
    return text


def find_digests(data: bytes) -> frozenset[Digest]:
    """Every digest that stands in ``data`` between quotes."""
    found = re.findall(rb'"(sha256:[0-9a-f]{64})(?=")', data)
    return frozenset(Digest(text.decode()) for text in found)


def parse_prefix(text: str) -> str:
    """The hex of an abbreviated digest given by a person: at least 6 digits, ``sha256:`` optional.

    Raises ``UsageError``.
    """
    digits = text.removeprefix(PREFIX)
    if not 6 <= len(digits) <= 64 or not _HEX.issuperset(digits):
        raise UsageError(
            f"{text}: not a digest", hint="give sha256: and at least 6 lower-case hex digits"
        )
    return digits
