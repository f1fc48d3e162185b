"""Where the bytes of a page belong in the state of a slot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kvg.errors import Bug

PIECE_BYTES = 1 << 20
"""What is placed at once is about as much: it comes from the processor's cache."""


class Place(NamedTuple):
    """Where one tensor of a page belongs: ``n_rows`` of ``row_bytes`` each, ``stride`` apart."""

    offset: int
    n_rows: int
    row_bytes: int
    stride: int

    @property
    def size(self) -> int:
        return self.n_rows * self.row_bytes


class Placing:
    """Puts the data region of one page, from first to last, where it belongs in ``memory``.

    Whatever pieces it comes in. Whole tensors in equal steps are moved by one call, without the
    interpreter, so that another thread can do the same meanwhile.
    """

    def __init__(self, memory: memoryview, places: Sequence[Place]) -> None:
        self._memory = memory
        self._places = places
        self._index = 0
        self._within = 0

    @property
    def piece_bytes(self) -> int:
        """Bytes that best come at once: whole pairs of keys and values."""
        pair = sum(place.size for place in self._places[:2])
        return max(1, PIECE_BYTES // pair) * pair

    @property
    def left(self) -> int:
        """Bytes that are still to come."""
        return sum(place.size for place in self._places[self._index :]) - self._within

    def put(self, piece: memoryview) -> None:
        """Put what comes next."""
        if piece.nbytes > self.left:
            raise Bug("placing: more bytes than a page of this shape has")
        while piece.nbytes:
            n = 0 if self._within else self._run(piece.nbytes)
            piece = piece[self._put_whole(piece, n) if n else self._put_row(piece) :]

    def _run(self, n_bytes: int) -> int:
        """How many of the tensors from here on have one shape, equal steps, and are all there."""
        places, first = self._places, self._index
        shape, step = places[first][1:], None
        last = first
        while (last - first + 1) * places[first].size <= n_bytes:
            last += 1
            if last == len(places) or places[last][1:] != shape:
                break
            moved = places[last].offset - places[last - 1].offset
            if step not in (None, moved):
                break
            step = moved
        return last - first

    def _put_whole(self, piece: memoryview, n: int) -> int:
        place = self._places[self._index]
        step = self._places[self._index + 1].offset - place.offset if n > 1 else 0
        shape = (n, place.n_rows, place.row_bytes)
        target = np.ndarray(shape, np.uint8, self._memory, place.offset, (step, place.stride, 1))
        source = np.frombuffer(piece, np.uint8, n * place.size).reshape(shape)
        np.copyto(target, source)
        self._index += n
        return n * place.size

    def _put_row(self, piece: memoryview) -> int:
        """As much of one row as there is."""
        place = self._places[self._index]
        row, at = divmod(self._within, place.row_bytes)
        n = min(piece.nbytes, place.row_bytes - at)
        start = place.offset + row * place.stride + at
        self._memory[start : start + n] = piece[:n]
        self._within += n
        if self._within == place.size:
            self._index, self._within = self._index + 1, 0
        return n
