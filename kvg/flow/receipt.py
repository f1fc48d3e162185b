"""Receipts that travel: what ``kvg log --receipt`` prints, and its check far from the store."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from kvg.errors import Corrupt, Untrusted
from kvg.flow.records.stores import CheckedReceipt

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvg.log.checkpoint import Checkpoint
    from kvg.log.log import Log
    from kvg.signing.keys import PublicKey

    Signer = Callable[[Checkpoint], tuple[str, PublicKey]]
    """The name and key of who must have signed a checkpoint."""

_PART = re.compile(r"^(?:c2sp\.org/|extra |index \d|— )", re.M)
"""How lines begin that stand in a receipt alone."""
_HEAD = re.compile(r"^c2sp\.org/tlog-proof@v1$", re.M)
"""The first line of each, which none has again: what is between two is looked at once."""
_RECEIPT = re.compile(r"(?:.+\n)+\n(?:.+\n)+\n(?:— .+\n)+")
MAX_TEXT_BYTES = 64 << 20


def receipt_of(log: Log, index: int, entry: bytes) -> str:
    """The receipt of ``entry``, which it carries along: it can be checked without the store."""
    from kvg.log.receipts import encode_receipt, parse_receipt

    bare = parse_receipt(log.receipt(index), what=f"log entry {index}")
    return encode_receipt(replace(bare, extra=entry)).decode("utf-8")


def check_receipts(
    data: bytes, verifier: str | None, own: Callable[[], Log]
) -> Iterator[CheckedReceipt]:
    """Check every receipt in ``data``: a receipt, or what ``kvg log --receipt`` printed.

    ``verifier`` is the log's signed-note key; without it the log ``own()`` must have made them,
    under any key that it had.
    Raises ``Corrupt`` when there is none or one is malformed, ``Untrusted`` when one proves
    nothing: another log, another entry, no signature by that key.
    """
    text = data.decode("utf-8", "replace") if len(data) < MAX_TEXT_BYTES else ""
    found, between = _split(text)
    if not found:
        raise Corrupt("no receipt in the file", hint="kvg log REF --receipt > FILE")
    if any(_PART.search(part) for part in between):
        raise Corrupt(
            "a receipt in the file is cut or altered", hint="kvg log REF --receipt > FILE"
        )
    signer = _own_signer(own()) if verifier is None else _given_signer(verifier)
    for number, text in enumerate(found):
        yield _check(text.encode("utf-8"), signer, f"receipt {number + 1}")


def _split(text: str) -> tuple[list[str], list[str]]:
    """What has the form of a receipt in ``text``, and all that stands before, between and behind.

    Linear in the length of ``text``: of what has no end like one no more is read than of the
    longest receipt.
    """
    from kvg.log.receipts import MAX_RECEIPT_SIZE

    found: list[str] = []
    heads = [head.start() for head in _HEAD.finditer(text)]
    between = [text[: heads[0]] if heads else text]
    for start, stop in pairwise([*heads, len(text)]):
        receipt = _RECEIPT.match(text, start, min(stop, start + MAX_RECEIPT_SIZE))
        end = start if receipt is None else receipt.end()
        found += [] if receipt is None else [receipt[0]]
        between.append(text[end:stop])
    return found, between


def _given_signer(line: str) -> Signer:
    from kvg.signing.note import parse_verifier

    origin, public = parse_verifier(line, what="--verifier")
    return lambda _: (origin, public)


def _own_signer(log: Log) -> Signer:
    """The log's key at the size that a receipt speaks of, which has to be a part of the log."""
    from kvg.log.rekey import key_at

    def signer(checkpoint: Checkpoint) -> tuple[str, PublicKey]:
        size = checkpoint.size
        if checkpoint.origin != log.origin or size > log.size:
            return log.origin, log.verifier
        if not log.is_extension_of(size, checkpoint.root):
            raise Untrusted(f"log {log.origin}: never had that root at size {size}")
        return log.origin, key_at(log, size)

    return signer


def _check(data: bytes, signer: Signer, what: str) -> CheckedReceipt:
    from kvg.flow.log import record_of
    from kvg.log.entry import parse_entry
    from kvg.log.receipts import check_receipt, parse_receipt

    receipt = parse_receipt(data, what=what)
    if not receipt.extra:
        raise Untrusted(f"{what}: carries no entry", hint="kvg log REF --receipt > FILE")
    origin, public = signer(receipt.checkpoint)
    checked = check_receipt(receipt, receipt.extra, origin=origin, verifier=public, what=what)
    said = record_of(receipt.index, parse_entry(receipt.extra, what=what))
    return CheckedReceipt(
        origin=origin,
        size=checked.size,
        index=said.index,
        time=said.time,
        entry=said.entry,
        ref=said.ref,
        digest=said.digest,
        detail=said.detail,
    )
