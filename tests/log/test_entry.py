from __future__ import annotations

import json
import typing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvg.canon import encode
from kvg.digest import sha256
from kvg.errors import Corrupt, Incompatible
from kvg.flow.log import record_of
from kvg.log import entry as e
from kvg.log.merkle import leaf_hash

A, B = sha256(b"a"), sha256(b"b")
ENTRIES: list[e.Entry] = [
    e.AttestationEntry(1, A, B),
    e.RefEntry(2, "demo", A, None),
    e.RefEntry(3, "demo/x", None, A),
    e.TrustEntry(4, 7, A),
    e.RevokeEntry(5, "ab" * 32, "store.example/kvg", 12),
    e.ForgetEntry(6, A),
    e.PreregEntry(7, B),
    e.PinEntry(8, A, True),
    e.PinEntry(9, A, False),
    e.RekeyEntry(10, "store.example/kvg+0badc0de+AAAA"),
]


def test_every_type_of_entry_is_here_and_is_shown() -> None:
    assert {type(entry) for entry in ENTRIES} == {kind for kind, _ in e._KINDS.values()}
    assert set(e._KINDS) == {kind.type for kind in typing.get_args(e.Entry)}
    assert [record_of(0, entry).entry for entry in ENTRIES] == [entry.type for entry in ENTRIES]


def test_vectors(entry_vectors: list[dict[str, str]]) -> None:
    for vector in entry_vectors:
        data = vector["canonical"].encode()
        assert leaf_hash(data).hex() == vector["leaf"]
        assert e.encode_entry(e.parse_entry(data, what="entry")) == data


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.type)
def test_round_trip(entry: e.Entry) -> None:
    data = e.encode_entry(entry)
    assert e.parse_entry(memoryview(data), what="entry") == entry
    assert json.loads(data)["type"] == entry.type
    assert json.loads(data)["schema"] == "kvg.log/1"


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.type)
def test_every_key_is_needed_and_no_other(entry: e.Entry) -> None:
    value = json.loads(e.encode_entry(entry))
    for key in value:
        with pytest.raises(Corrupt, match=r"^entry 3: "):
            e.parse_entry(encode({k: v for k, v in value.items() if k != key}), what="entry 3")
    with pytest.raises(Corrupt, match=r"^entry 3: "):
        e.parse_entry(encode({**value, "extra": None}), what="entry 3")
    with pytest.raises(Incompatible):
        e.parse_entry(encode({**value, "schema": "kvg.log/2"}), what="entry 3")


JSON = st.none() | st.booleans() | st.integers(-5, 2**53 - 1) | st.text(max_size=8) | st.just([])


@given(st.sampled_from(ENTRIES), st.data(), JSON)
def test_any_value_in_any_field(entry: e.Entry, data: st.DataObject, new: Any) -> None:
    value = json.loads(e.encode_entry(entry))
    value[data.draw(st.sampled_from(sorted(value)))] = new
    raw = encode(value)
    try:
        found = e.parse_entry(raw, what="entry")
    except (Corrupt, Incompatible) as error:
        assert error.message.startswith("entry: ")
    else:
        assert e.encode_entry(found) == raw


@given(st.sampled_from(ENTRIES), st.data())
def test_mutated_bytes(entry: e.Entry, data: st.DataObject) -> None:
    raw = bytearray(e.encode_entry(entry))
    start = data.draw(st.integers(0, len(raw)))
    raw[start : start + data.draw(st.integers(0, 5))] = data.draw(st.binary(max_size=5))
    try:
        found = e.parse_entry(raw, what="entry")
    except (Corrupt, Incompatible) as error:
        assert error.message.startswith("entry: ")
    else:
        assert e.encode_entry(found) == raw


@pytest.mark.parametrize(
    "make",
    [
        lambda: e.ForgetEntry(-1, A),
        lambda: e.ForgetEntry(True, A),
        lambda: e.ForgetEntry(1, "a"),  # type: ignore[arg-type]
        lambda: e.AttestationEntry(1, A, None),  # type: ignore[arg-type]
        lambda: e.RefEntry(1, "", A, None),
        lambda: e.RefEntry(1, "a\nb", A, None),
        lambda: e.RefEntry(1, "a" * 1025, A, None),
        lambda: e.RevokeEntry(1, "AB" * 32, "o", 0),
        lambda: e.RevokeEntry(1, "ab", "o", 0),
        lambda: e.RevokeEntry(1, "ab" * 32, "", 0),
        lambda: e.PinEntry(1, A, 1),  # type: ignore[arg-type]
        lambda: e.TrustEntry(1, 2**53, A),
    ],
)
def test_malformed_entries_cannot_be_made(make: Any) -> None:
    with pytest.raises(Corrupt):
        make()


def test_what_is_no_entry_is_corrupt() -> None:
    for data in (b"", b"{}", b"[]", b"null", b"x" * 70000, b'{"schema":"kvg.log/1"}'):
        with pytest.raises(Corrupt, match=r"^entry: "):
            e.parse_entry(data, what="entry")
