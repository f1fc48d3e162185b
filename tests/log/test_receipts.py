from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvg.errors import Corrupt, Untrusted, UsageError
from kvg.log.checkpoint import Checkpoint, sign_checkpoint
from kvg.log.log import Log
from kvg.log.merkle import leaf_hash
from kvg.log.receipts import Receipt, check_receipt, encode_receipt, parse_receipt
from kvg.signing import base64
from kvg.signing.keys import PrivateKey

ORIGIN = "store.example/kvg"


@pytest.mark.parametrize("size", [1, 2, 7, 300])
def test_receipts_prove_each_position(log: Log, key: PrivateKey, size: int) -> None:
    entries = [b"entry %d" % i for i in range(size)]
    log.append(entries, key)
    for index in {0, 1, size // 2, size - 1} & set(range(size)):
        data = log.receipt(index)
        receipt = parse_receipt(memoryview(data), what="r")
        assert encode_receipt(receipt) == data
        assert (receipt.index, receipt.origin) == (index, ORIGIN)
        found = check_receipt(receipt, entries[index], origin=ORIGIN, verifier=key.public, what="r")
        assert found == log.checkpoint


def test_the_text_is_that_of_the_specification(log: Log, key: PrivateKey) -> None:
    log.append([b"a", b"b"], key)
    sibling = base64.encode(leaf_hash(b"a"))
    expected = f"c2sp.org/tlog-proof@v1\nindex 1\n{sibling}\n\n".encode() + log.note
    assert log.receipt(1) == expected


def test_other_entries_keys_and_logs_are_untrusted(
    log: Log, key: PrivateKey, other_key: PrivateKey
) -> None:
    log.append([b"a", b"b", b"c"], key)
    receipt = parse_receipt(log.receipt(1), what="r")
    for entry, origin, verifier in (
        (b"c", ORIGIN, key.public),
        (b"b", "other", key.public),
        (b"b", ORIGIN, other_key.public),
    ):
        with pytest.raises(Untrusted, match=r"^r: "):
            check_receipt(receipt, entry, origin=origin, verifier=verifier, what="r")
    with pytest.raises((Corrupt, Untrusted)):
        moved = replace(receipt, index=2)
        check_receipt(moved, b"b", origin=ORIGIN, verifier=key.public, what="r")


def test_there_is_none_past_the_end(log: Log, key: PrivateKey) -> None:
    log.append([b"a"], key)
    for index in (-1, 1):
        with pytest.raises(UsageError, match=str(log.folder)):
            log.receipt(index)


def test_extra_is_kept_and_proves_nothing(log: Log, key: PrivateKey) -> None:
    log.append([b"a"], key)
    receipt = replace(parse_receipt(log.receipt(0), what="r"), extra=b"anything")
    data = encode_receipt(receipt)
    assert b"\nextra YW55dGhpbmc=\nindex 0\n" in data
    assert parse_receipt(data, what="r") == receipt


def test_every_flip_is_detected(log: Log, key: PrivateKey) -> None:
    log.append([b"a", b"b", b"c"], key)
    data = log.receipt(2)
    for index in range(len(data)):
        for bit in range(8):
            wrong = bytearray(data)
            wrong[index] ^= 1 << bit
            with pytest.raises((Corrupt, Untrusted), match=r"^r"):
                receipt = parse_receipt(wrong, what="r")
                check_receipt(receipt, b"c", origin=ORIGIN, verifier=key.public, what="r")


NOTE_KEY_HASH = "A" * 43 + "="


@pytest.mark.parametrize(
    "head",
    [
        "",
        "c2sp.org/tlog-proof@v2\nindex 0",
        "c2sp.org/tlog-proof@v1",
        "c2sp.org/tlog-proof@v1\nindex 00",
        "c2sp.org/tlog-proof@v1\nindex -1",
        "c2sp.org/tlog-proof@v1\nindex 3",
        "c2sp.org/tlog-proof@v1\nindex 99999999999999999999",
        "c2sp.org/tlog-proof@v1\nindex 0\nAAAA",
        "c2sp.org/tlog-proof@v1\nindex 0\n" + "A" * 42 + "B=",
        "c2sp.org/tlog-proof@v1\nindex 0\n" + "\n".join([NOTE_KEY_HASH] * 65),
        "c2sp.org/tlog-proof@v1\nextra =\nindex 0",
        "c2sp.org/tlog-proof@v1\nextra AA==",
        "c2sp.org/tlog-proof@v1\nindex 0\nextra AA==",
        "c2sp.org/tlog-proof@v1\nextra \nindex \u0660",
    ],
)
def test_malformed_receipts_are_corrupt(head: str, key: PrivateKey) -> None:
    note = sign_checkpoint(Checkpoint(ORIGIN, 3, bytes(32)), key)
    with pytest.raises(Corrupt, match=r"^r"):
        parse_receipt(head.encode() + b"\n\n" + note, what="r")


def test_a_receipt_of_an_empty_log_cannot_be_made(key: PrivateKey) -> None:
    checkpoint = Checkpoint(ORIGIN, 0, bytes(32))
    with pytest.raises(Corrupt):
        Receipt(0, (), checkpoint, sign_checkpoint(checkpoint, key))


@given(st.binary(max_size=200))
def test_arbitrary_bytes(data: bytes) -> None:
    with pytest.raises(Corrupt, match=r"^r"):
        parse_receipt(data, what="r")
