"""A page's bytes go where they belong, whatever pieces they come in."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from kvg.errors import Bug
from kvg.model.placing import PIECE_BYTES, Place, Placing

STEADY = [Place(100 + 40 * n, 3, 8, 10) for n in range(6)]
UNSTEADY = [Place(7, 2, 5, 9), Place(40, 2, 5, 9), Place(60, 2, 5, 9), Place(80, 1, 30, 0)]


def expected(places: list[Place], data: bytes, size: int) -> bytearray:
    out, at = bytearray(size), 0
    for place in places:
        for row in range(place.n_rows):
            start = place.offset + row * place.stride
            out[start : start + place.row_bytes] = data[at : at + place.row_bytes]
            at += place.row_bytes
    return out


@pytest.mark.parametrize("places", [STEADY, UNSTEADY, UNSTEADY[::-1], STEADY + UNSTEADY])
def test_any_pieces(places: list[Place]) -> None:
    n, random = sum(place.size for place in places), Random(1)
    data = random.randbytes(n)
    for cuts in (
        [],
        [1],
        [24],
        [48, 49],
        *(sorted(random.choices(range(n), k=9)) for _ in range(50)),
    ):
        memory = bytearray(400)
        placing = Placing(memoryview(memory), places)
        for a, b in pairwise([0, *cuts, n]):
            placing.put(memoryview(data)[a:b])
            assert placing.left == n - b
        assert memory == expected(places, data, 400)


def test_more_than_there_is_room_for_is_refused() -> None:
    placing = Placing(memoryview(bytearray(400)), STEADY)
    with pytest.raises(Bug):
        placing.put(memoryview(bytes(sum(place.size for place in STEADY) + 1)))


@pytest.mark.parametrize("row", [1, 1000, PIECE_BYTES // 3, 5 * PIECE_BYTES])
def test_a_piece_is_whole_pairs(row: int) -> None:
    places = [Place(0, 2, row, row)] * 4
    size = Placing(memoryview(b""), places).piece_bytes
    assert size % (4 * row) == 0
    assert size <= max(PIECE_BYTES, 4 * row)
