"""The raw bytes of a stored object, piece by piece and in bounded memory, to be checked elsewhere.

A piece stays in a core's cache from the system's cache to where it belongs: it is read, decoded,
and hashed and moved by who takes it. Nothing is hashed here. What is decoded is bounded by sizes
that were checked before, whatever the bytes are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kvg.codec.header import (
    ALIGNMENT,
    AS_IS,
    Frame,
    Header,
    parse_header,
    parse_header_size,
)
from kvg.codec.planes import Join, join_in_turn
from kvg.codec.stored import check_claims, check_padding
from kvg.codec.zstd import Inflating
from kvg.digest import Digest
from kvg.errors import Corrupt

PIECE_BYTES = 256 << 10
"""Raw bytes at once, a multiple of every number of planes. BLAKE3 takes them in long runs."""

FIRST_BYTES = 2 * ALIGNMENT
"""Bytes that are read for the header and the padding after it."""

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

    def pieces(self, join: Join | None = None) -> Iterator[memoryview]:
        """All raw bytes, exactly as many as the header says. Each view is good until the next.

        ``join`` puts byte planes together. Raises ``Corrupt``.
        """
        join = join or join_in_turn
        position = self._header.data_offset
        out = bytearray(min(PIECE_BYTES, self._header.raw_size))
        for frame in self._header.frames:
            yield from self._frame(frame, position, join, out)
            position += frame.stored_size

    def _frame(
        self, frame: Frame, position: int, join: Join, out: bytearray
    ) -> Iterator[memoryview]:
        planes: list[_PlainPlane | _PackedPlane] = []
        for index, (size, coding) in enumerate(frame.planes):
            kind = _PlainPlane if coding == AS_IS else _PackedPlane
            planes.append(kind(self._source, position, size, frame.plane_raw_size(index)))
            position += size
        left, n = frame.raw_size, len(planes)
        while left:
            taken = min(left, PIECE_BYTES)
            parts = [plane.next((taken - i + n - 1) // n) for i, plane in enumerate(planes)]
            if n == 1:
                yield parts[0]
            else:
                join(parts, out, taken)
                yield memoryview(out)[:taken]
            left -= taken
        for plane in planes:
            plane.end()


class _PlainPlane:
    """A plane that is stored as it is: read bit by bit."""

    def __init__(self, source: _Source, position: int, size: int, raw_size: int) -> None:
        self._source = source
        self._position = position
        self._buffer = memoryview(bytearray(min(raw_size, PIECE_BYTES)))

    def next(self, n_bytes: int) -> memoryview:
        piece = self._buffer[:n_bytes]
        self._source.fill(piece, self._position)
        self._position += n_bytes
        return piece

    def end(self) -> None:
        """Its size is in the header, and was checked there."""


class _PackedPlane:
    """A plane that is a zstd frame: read whole and checked first, then inflated bit by bit."""

    def __init__(self, source: _Source, position: int, size: int, raw_size: int) -> None:
        self._inflating = Inflating(source.read(position, size), raw_size, what=source.what)
        self._buffer = memoryview(bytearray(min(raw_size, PIECE_BYTES)))

    def next(self, n_bytes: int) -> memoryview:
        piece = self._buffer[:n_bytes]
        self._inflating.fill(piece)
        return piece

    def end(self) -> None:
        self._inflating.end()
