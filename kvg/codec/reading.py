"""The raw bytes of a stored object, piece by piece and in bounded memory, to be checked elsewhere.

A piece stays in a core's cache from the system's cache to where it belongs: it is read, decoded,
and hashed and moved by who takes it. Nothing is hashed here. What is decoded is bounded by sizes
that were checked before, whatever the bytes are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kvg.codec.header import (
    ALIGNMENT,
    AS_IS,
    FIRST_BYTES,
    Frame,
    Header,
    parse_header,
    parse_header_size,
)
from kvg.codec.planes import Join, join_in_turn
from kvg.codec.stored import check_claims, check_padding
from kvg.codec.zstd import expand
from kvg.digest import Digest
from kvg.errors import Corrupt

if TYPE_CHECKING:
    from kvg.buffers import Buffers

PIECE_BYTES = 1 << 20
"""Raw bytes at once, a multiple of every number of planes: they stay in a processor's cache, and
each step takes long enough that threads seldom wait for each other's turn in the interpreter."""

ReadInto = Callable[[memoryview, int], int]
"""Fills a buffer from a position of the stored form; gives how many bytes there were."""


def open_pieces(
    read_into: ReadInto, n_stored: int, *, digest: Digest, size: int, what: str
) -> PieceReader:
    """A reader of the object's ``size`` raw bytes, once its header and padding are checked.

    Raises ``Corrupt`` naming ``what`` as ``decode`` does, ``Incompatible`` for a reserved codec.
    """
    source = _Source(read_into, what)
    view = source.read(0, min(n_stored, FIRST_BYTES)).toreadonly()
    n_header = parse_header_size(view, what=what)
    if n_header + ALIGNMENT > FIRST_BYTES and n_header <= n_stored:
        view = source.read(0, min(n_stored, n_header + ALIGNMENT)).toreadonly()
    header = parse_header(view, what=what)
    check_claims(header, n_stored, digest=digest, size=size, limit=max(size, 1), what=what)
    check_padding(view[header.size : header.data_offset], what=what)
    return PieceReader(source, header)


class _Source:
    """The stored form, read by position."""

    def __init__(self, read_into: ReadInto, what: str) -> None:
        self._read_into = read_into
        self.what = what

    def fill(self, buffer: memoryview, position: int) -> None:
        """Fill ``buffer``. Raises ``Corrupt`` at the end."""
        while buffer.nbytes:
            n = self._read_into(buffer, position)
            if n == 0:
                raise Corrupt(f"{self.what}: became shorter while it was read", hint="kvg fsck")
            buffer, position = buffer[n:], position + n

    def read(self, position: int, size: int) -> memoryview:
        buffer = memoryview(bytearray(size))
        self.fill(buffer, position)
        return buffer


class PieceReader:
    """The raw bytes of one object from first to last."""

    def __init__(self, source: _Source, header: Header) -> None:
        self._source = source
        self._header = header

    def pieces(
        self,
        join: Join | None = None,
        *,
        first: int = 0,
        most: int = 0,
        buffers: Buffers | None = None,
    ) -> Iterator[memoryview]:
        """All raw bytes, exactly as many as the header says. Each view is good until the next.

        ``join`` puts byte planes together. The first piece has ``first`` bytes where that is not 0,
        the others ``most`` (``PIECE_BYTES``); all less at the end of a frame, and whole elements:
        rounded up to the number of planes. ``buffers`` are used for all of it. Raises ``Corrupt``.
        """
        from kvg.buffers import Buffers

        join, buffers = join or join_in_turn, buffers or Buffers()
        first, most = (n + -n % self._header.planes for n in (first, most or PIECE_BYTES))
        position = self._header.data_offset
        for index, frame in enumerate(self._header.frames):
            sizes = _sizes(frame.raw_size, first if index == 0 else 0, most)
            yield from self._frame(frame, position, join, sizes, buffers)
            position += frame.stored_size

    def _frame(
        self, frame: Frame, position: int, join: Join, sizes: Iterator[int], buffers: Buffers
    ) -> Iterator[memoryview]:
        planes: list[_PlainPlane | _PackedPlane] = []
        for index, (size, coding) in enumerate(frame.planes):
            kind = _PlainPlane if coding == AS_IS else _PackedPlane
            raw_size = frame.plane_raw_size(index)
            planes.append(kind(self._source, position, size, raw_size, f"{index}", buffers))
            position += size
        n = len(planes)
        for taken in sizes:
            parts = [plane.next((taken - i + n - 1) // n) for i, plane in enumerate(planes)]
            if n == 1:
                yield parts[0]
            else:
                out = buffers.take("joined", taken)
                join(parts, out, taken)
                yield out


def _sizes(whole: int, first: int, most: int) -> Iterator[int]:
    """Sizes of pieces of ``whole`` bytes: ``first`` where that is not 0, then ``most`` at most."""
    taken = min(first, whole)
    if taken:
        yield taken
    while taken < whole:
        size = min(most, whole - taken)
        yield size
        taken += size


class _PlainPlane:
    """A plane that is stored as it is: read bit by bit."""

    def __init__(
        self, source: _Source, position: int, size: int, raw_size: int, name: str, buffers: Buffers
    ) -> None:
        self._source = source
        self._position = position
        self._name = name
        self._buffers = buffers

    def next(self, n_bytes: int) -> memoryview:
        piece = self._buffers.take(self._name, n_bytes, at=self._position)
        self._source.fill(piece, self._position)
        self._position += n_bytes
        return piece


class _PackedPlane:
    """A plane that is a zstd frame: read whole, checked and inflated at once."""

    def __init__(
        self, source: _Source, position: int, size: int, raw_size: int, name: str, buffers: Buffers
    ) -> None:
        packed = buffers.take(name, size, at=position)
        source.fill(packed, position)
        self._left = memoryview(expand(packed, raw_size, what=source.what))

    def next(self, n_bytes: int) -> memoryview:
        piece, self._left = self._left[:n_bytes], self._left[n_bytes:]
        return piece
