from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvg.digest import hex_of, sha256
from kvg.errors import Corrupt, UsageError
from kvg.objects.tokens import decode_ids, encode_ids, first_difference

IDS = st.lists(st.integers(0, 2**32 - 1), max_size=50)


def test_vectors(vectors: dict[str, Any]) -> None:
    for vector in vectors["tokens_blob"]:
        assert hex_of(sha256(encode_ids(vector["ids"]))) == vector["sha256"]


@given(IDS)
def test_round_trip(ids: list[int]) -> None:
    data = encode_ids(ids)
    assert decode_ids(memoryview(data), what="tokens", count=len(ids)) == tuple(ids)
    assert decode_ids(data, what="tokens") == tuple(ids)


@pytest.mark.parametrize("ids", [[-1], [2**32], [1.5], ["a"]])
def test_what_is_no_id_is_refused(ids: list[Any]) -> None:
    with pytest.raises(UsageError):
        encode_ids(ids)


@pytest.mark.parametrize(("size", "count"), [(3, None), (5, None), (8, 1), (4, 2), (0, 1)])
def test_wrong_length_is_corrupt_and_named(size: int, count: int | None) -> None:
    with pytest.raises(Corrupt, match=r"^tokens of a: "):
        decode_ids(b"\0" * size, what="tokens of a", count=count)


@given(IDS, IDS)
def test_first_difference(a: list[int], b: list[int]) -> None:
    index = first_difference(a, b)
    if index is None:
        assert a == b
    else:
        assert a[:index] == b[:index]
        assert a[index : index + 1] != b[index : index + 1]


def test_a_prefix_differs_where_it_ends() -> None:
    assert first_difference((1, 2), (1, 2, 3)) == 2
    assert first_difference([1, 2], (1, 2)) is None
