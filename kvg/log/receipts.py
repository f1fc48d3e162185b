"""Receipts: proof, checkable offline, that an entry has a position in a log.

The text format of https://c2sp.org/tlog-proof (version 1): index, inclusion proof, checkpoint.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kvg import canon
from kvg.digest import Buffer
from kvg.errors import Corrupt
from kvg.frozen import frozen
from kvg.log import merkle
from kvg.log.checkpoint import (
    MAX_CHECKPOINT_SIZE,
    Checkpoint,
    decode_hash,
    open_checkpoint,
    parse_checkpoint,
)
from kvg.signing import base64

if TYPE_CHECKING:
    from kvg.signing.keys import PublicKey

MAX_RECEIPT_SIZE: Final = MAX_CHECKPOINT_SIZE + (128 << 10)
_FIRST_LINE = "c2sp.org/tlog-proof@v1"
_INDEX = r"index (0|[1-9][0-9]{0,15})"
_MAX_HASHES = 64


@frozen
class Receipt:
    """A position (origin, index) with its proof; ``note`` is the checkpoint's bytes.

    Parsed, not checked: see ``check_receipt``. ``extra`` is never authenticated.
    """

    index: int
    proof: tuple[bytes, ...]
    checkpoint: Checkpoint
    note: bytes
    extra: bytes = b""

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.checkpoint.size or len(self.proof) > _MAX_HASHES:
            raise Corrupt(f"receipt: index {self.index} of {self.checkpoint.size}")

    @property
    def origin(self) -> str:
        """The log that it speaks of."""
        return self.checkpoint.origin


def encode_receipt(receipt: Receipt) -> bytes:
    """The text of ``receipt``."""
    lines = [_FIRST_LINE]
    if receipt.extra:
        lines.append(f"extra {base64.encode(receipt.extra)}")
    lines.append(f"index {receipt.index}")
    lines += map(base64.encode, receipt.proof)
    return "\n".join(lines).encode("utf-8") + b"\n\n" + receipt.note


def parse_receipt(data: Buffer, *, what: str) -> Receipt:
    """The receipt in the untrusted ``data``. Raises ``Corrupt`` naming ``what``."""
    whole = bytes(data) if memoryview(data).nbytes <= MAX_RECEIPT_SIZE else b""
    head, blank, note = whole.partition(b"\n\n")
    try:
        lines = head.decode("ascii").split("\n")
    except UnicodeDecodeError:
        lines = []
    if not blank or len(lines) < 2 or lines.pop(0) != _FIRST_LINE:
        raise Corrupt(f"{what}: not a receipt: {_FIRST_LINE} expected")
    extra = b""
    if lines[0].startswith("extra "):
        extra = base64.decode(lines.pop(0).removeprefix("extra "), what=f"{what}: extra")
    match = re.fullmatch(_INDEX, lines[0], re.ASCII) if lines else None
    if match is None or int(match[1]) > canon.MAX_INTEGER or len(lines) > 1 + _MAX_HASHES:
        raise Corrupt(f"{what}: malformed index or proof")
    proof = tuple(decode_hash(line, what=f"{what}: proof") for line in lines[1:])
    checkpoint = parse_checkpoint(note, what=f"{what}: checkpoint")
    try:
        return Receipt(int(match[1]), proof, checkpoint, note, extra)
    except Corrupt as error:
        raise Corrupt(f"{what}: {error.message}") from None


def check_receipt(
    receipt: Receipt, entry: Buffer, *, origin: str, verifier: PublicKey, what: str
) -> Checkpoint:
    """The checkpoint under which ``entry`` is at ``receipt.index`` of the log ``origin``.

    Raises ``Untrusted`` on another log, a checkpoint that ``verifier`` did not sign or another
    entry, ``Corrupt`` on a malformed proof. All name ``what``.
    """
    checkpoint = open_checkpoint(receipt.note, origin=origin, verifier=verifier, what=what)
    merkle.check_inclusion(
        merkle.leaf_hash(entry),
        receipt.index,
        checkpoint.size,
        receipt.proof,
        checkpoint.root,
        what=what,
    )
    return checkpoint
