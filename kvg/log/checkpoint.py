"""Checkpoints: what a log signs, its origin, size and root (https://c2sp.org/tlog-checkpoint)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kvg import canon
from kvg.digest import Buffer
from kvg.errors import Corrupt, Untrusted, UsageError
from kvg.frozen import frozen
from kvg.log.merkle import HASH_SIZE
from kvg.signing import base64
from kvg.signing.note import (
    encode_signature,
    is_name,
    is_note_signed,
    parse_note,
    sign_note,
)

if TYPE_CHECKING:
    from kvg.signing.keys import PrivateKey, PublicKey

MAX_CHECKPOINT_SIZE: Final = 64 << 10
_MAX_DIGITS = 16


@frozen
class Checkpoint:
    """A log at one size: who, how many entries, the root over them."""

    origin: str
    size: int
    root: bytes

    def __post_init__(self) -> None:
        check_origin(self.origin)
        if not 0 <= self.size <= canon.MAX_INTEGER or len(self.root) != HASH_SIZE:
            raise Corrupt(f"checkpoint of {self.origin}: size or root out of range")

    @property
    def text(self) -> str:
        """What is signed."""
        return f"{self.origin}\n{self.size}\n{base64.encode(self.root)}\n"


def check_origin(origin: str) -> None:
    """Raise ``UsageError`` unless ``origin`` can name a log."""
    if not is_name(origin) or len(origin) > 200:
        raise UsageError(f"{origin[:80]!r}: not a log origin", hint="no white space, no +")


def sign_checkpoint(checkpoint: Checkpoint, *keys: PrivateKey) -> bytes:
    """The signed note of ``checkpoint``, one signature line for each of ``keys``."""
    return sign_note(checkpoint.text, [(checkpoint.origin, key) for key in keys])


def parse_checkpoint(data: Buffer, *, what: str) -> Checkpoint:
    """The checkpoint in the note ``data``, **not** authenticated. Raises ``Corrupt``.

    Extension lines after the root are passed over, as its specification asks.
    """
    if memoryview(data).nbytes > MAX_CHECKPOINT_SIZE:
        raise Corrupt(f"{what}: larger than any checkpoint")
    lines = parse_note(bytes(data), what=what).text.split("\n")
    if len(lines) < 4 or "" in lines[:-1]:
        raise Corrupt(f"{what}: not a checkpoint: origin, size and root expected")
    origin, size, root = lines[:3]
    if not is_name(origin) or len(origin) > 200 or not _is_size(size):
        raise Corrupt(f"{what}: malformed origin or size")
    if int(size) > canon.MAX_INTEGER:
        raise Corrupt(f"{what}: size past 2^53-1")
    return Checkpoint(origin, int(size), decode_hash(root, what=f"{what}: root"))


def _is_size(text: str) -> bool:
    is_number = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
    return is_number and (text == "0" or text[0] != "0")


def without_witnesses(note: bytes, origin: str, *, what: str) -> bytes:
    """``note`` with the lines of the log ``origin`` alone. Raises ``Corrupt``."""
    parsed = parse_note(note, what=what)
    lines = (encode_signature(line) for line in parsed.signatures if line.name == origin)
    return parsed.text.encode("utf-8") + b"\n" + b"".join(lines)


def open_checkpoint(data: Buffer, *, origin: str, verifier: PublicKey, what: str) -> Checkpoint:
    """The checkpoint in ``data``, signed by ``verifier`` as ``origin``.

    Raises ``Corrupt`` when malformed, ``Untrusted`` on another origin or without that signature.
    """
    checkpoint = parse_checkpoint(data, what=what)
    if checkpoint.origin != origin:
        raise Untrusted(f"{what}: of log {checkpoint.origin}, expected {origin}")
    if not is_note_signed(parse_note(bytes(data), what=what), origin, verifier):
        raise Untrusted(f"{what}: not signed by the key of log {origin}", hint="kvg fsck")
    return checkpoint


def decode_hash(text: str, *, what: str) -> bytes:
    """32 bytes in their one base64 spelling."""
    raw = base64.decode(text, what=what)
    if len(raw) != HASH_SIZE or base64.encode(raw) != text:
        raise Corrupt(f"{what}: not the base64 of 32 bytes")
    return raw
