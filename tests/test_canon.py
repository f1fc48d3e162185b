"""Canonical JSON against rfc8785, whichever of the two ways it is written."""

from __future__ import annotations

import tracemalloc
from enum import IntEnum
from types import MappingProxyType
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from kvg import canon
from kvg.errors import Corrupt

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-canon.MAX_INTEGER, canon.MAX_INTEGER)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
@example({"\U0001f600": 1, "\ufb33": 2, "a": 3})
@example({"b": [], "a": {}, "": ()})
@example("".join(map(chr, range(0x80))) + "\u2028\u2029\ufeff")
@example([True, 1, False, 0, None, -0])
def test_the_bytes_are_those_of_rfc8785(value: Any) -> None:
    data = canon.encode(value)
    assert data == rfc8785.dumps(value)
    assert canon.decode(data, what="x") == canon.parse_json(data, what="x")


class Level(IntEnum):
    """An integer by another name."""

    HIGH = 3


@pytest.mark.parametrize("value", [{"a": Level.HIGH}, ("a", "b"), [[1], (2,)]])
def test_other_spellings_of_plain_values(value: Any) -> None:
    assert canon.encode(value) == rfc8785.dumps(value)


@pytest.mark.parametrize(
    "value",
    [
        1.0,
        2**53,
        {"a": [1, 2.5]},
        {1: "a"},
        {"a": "\ud800"},
        {"\ud800": "a"},
        {"a": b"bytes"},
        MappingProxyType({"a": 1}),
        {"a"},
    ],
)
def test_what_has_no_canonical_bytes(value: Any) -> None:
    with pytest.raises(ValueError):
        canon.encode(value)


@pytest.mark.parametrize(
    "data",
    [
        b'{"b":1,"a":2}',
        b'{"a":1 }',
        b'{"a":1}\n',
        b'{"a":"\\u0061"}',
        b'{"a":"\\/"}',
        b'{"a":1,"a":1}',
        b'{"a":-0}',
        b'{"a":1e2}',
        '{"\U0001f600":1,"\ufb33":2}'.encode()[::-1],
        '{"\ufb33":2,"\U0001f600":1}'.encode(),
    ],
)
def test_a_second_spelling_is_refused(data: bytes) -> None:
    with pytest.raises(Corrupt):
        canon.decode(data, what="x")


@pytest.mark.parametrize("piece", [b"{},", b"[],", b'"",', b"0,"])
def test_small_bytes_cannot_become_much_memory(piece: bytes) -> None:
    """Twelve megabytes of empty objects would be 300 of them."""
    data = b"[" + piece * (canon.MAX_VALUES // 4) + b"0]"
    assert len(canon.decode(data, what="it")) > canon.MAX_VALUES // 4  # type: ignore[arg-type]
    data = b"[" + piece * canon.MAX_VALUES + b"0]"
    tracemalloc.start()
    try:
        with pytest.raises(Corrupt, match="values"):
            canon.decode(data, what="it")
        assert tracemalloc.get_traced_memory()[1] < 3 * len(data)
    finally:
        tracemalloc.stop()
