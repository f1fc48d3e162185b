"""Checking an object of codec 0 where it lies, or as it comes: as ``decode`` does, but never
holding it whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kvg.codec.header import (
    ALIGNMENT,
    FIRST_BYTES,
    RAW,
    Frame,
    Header,
    parse_header,
    parse_header_size,
)
from kvg.codec.stored import DEFAULT_LIMIT, check_claims, check_padding
from kvg.digest import Blake3Stream, Buffer, Digest, Sha256Stream
from kvg.errors import Corrupt
from kvg.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvg.buffers import Buffers

PIECE_BYTES = 256 << 10
"""Bytes at once: they stay in a core's cache while both hashes go over them."""

LONE_PIECE_BYTES = 1 << 20
"""Bytes at once where only one hash goes over them: threads then seldom wait for each other."""

HEAD_BYTES = 64 << 10
"""As many are read where the header says that it is longer than ``FIRST_BYTES``."""

ReadInto = Callable[[memoryview, int], int]
"""Fills a buffer from a position of the stored form; gives how many bytes there were."""

Pieces = Callable[[int, int], Iterable[memoryview]]
"""From a position of the stored form so many bytes, in turn; each is good until the next."""


@frozen
class Checked:
    """What a good object holds: the BLAKE3 of its raw bytes as hex, and the first of them.

    ``blake3`` is what the header says of it where it was not taken, None where that says nothing.
    """

    blake3: str | None
    head: bytes


def check_raw(
    read_into: ReadInto,
    n_stored: int,
    *,
    digest: Digest,
    size: int | None,
    what: str,
    head_bytes: int,
    with_blake3: bool = True,
    limit: int = DEFAULT_LIMIT,
    buffers: Buffers | None = None,
    pieces: Pieces | None = None,
) -> Checked | None:
    """Check every byte of an object of ``n_stored`` bytes in stored form, in constant memory.

    None, before anything but the header was checked, for one that is compressed or whose header is
    too long for this: ``decode`` that. ``head_bytes``: how many of the first raw bytes to give
    back. ``with_blake3``: False takes the SHA-256 of the whole alone. ``buffers`` are used for all
    of it. ``pieces`` gives what follows the header, in place of ``read_into``.
    Raises ``Corrupt`` naming ``what`` as ``decode`` does.
    """
    from kvg.buffers import Buffers

    buffers = buffers or Buffers()
    opened = _opened(read_into, n_stored, digest, size, what, limit, buffers)
    if opened is None:
        return None
    header, _ = opened
    if pieces is None:
        piece_bytes = min(PIECE_BYTES if with_blake3 else LONE_PIECE_BYTES, header.raw_size)
        buffer = buffers.take("piece", piece_bytes, at=header.data_offset)
        found = _raw_pieces(read_into, header, what, buffer)
    else:
        found = pieces(header.data_offset, header.raw_size)
    check = RawCheck(header, what=what, head_bytes=head_bytes, with_blake3=with_blake3)
    for piece in found:
        check.add(piece)
    return check.end()


def checked_pieces(
    read_into: ReadInto,
    n_stored: int,
    *,
    digest: Digest,
    size: int | None,
    what: str,
    limit: int = DEFAULT_LIMIT,
    buffers: Buffers,
) -> Iterator[memoryview] | None:
    """The whole stored form in pieces, each good until the next, its SHA-256 taken meanwhile.

    None as ``check_raw``. Raises ``Corrupt`` at the end where it is damaged: keep nothing then.
    """
    opened = _opened(read_into, n_stored, digest, size, what, limit, buffers)
    return None if opened is None else _checked(*opened, read_into, what, buffers)


def _checked(
    header: Header, head: memoryview, read_into: ReadInto, what: str, buffers: Buffers
) -> Iterator[memoryview]:
    yield head[: header.data_offset]
    buffer = buffers.take("piece", min(PIECE_BYTES, header.raw_size), at=header.data_offset)
    check = RawCheck(header, what=what, with_blake3=False)
    for piece in _raw_pieces(read_into, header, what, buffer):
        check.add(piece)
        yield piece
    check.end()


def _opened(
    read_into: ReadInto,
    n_stored: int,
    digest: Digest,
    size: int | None,
    what: str,
    limit: int,
    buffers: Buffers,
) -> tuple[Header, memoryview] | None:
    """The header, checked, and the first bytes, the padding among them; None: see ``check_raw``."""
    for most in (FIRST_BYTES, HEAD_BYTES):
        view = buffers.take("head", min(n_stored, most))
        view = view[: read_into(view, 0)].toreadonly()
        if parse_header_size(view, what=what) + ALIGNMENT <= most:
            break
    else:
        return None
    header = parse_header(view, what=what)
    if header.codec != RAW or header.data_offset > len(view):
        return None
    check_claims(header, n_stored, digest=digest, size=size, limit=limit, what=what)
    check_padding(view[header.size : header.data_offset], what=what)
    return header, view


class RawCheck:
    """The raw bytes of an object of codec 0 as they come, in pieces of any size."""

    def __init__(
        self, header: Header, *, what: str, head_bytes: int = 0, with_blake3: bool = True
    ) -> None:
        """``head_bytes``, ``with_blake3``: see ``check_raw``."""
        self._header = header
        self._what = what
        self._head_bytes = head_bytes
        self._sha = Sha256Stream()
        self._head = bytearray()
        self._frames = enumerate(header.frames)
        self._frame: tuple[int, Frame] | None = None
        self._left = 0
        self._with_blake3 = with_blake3
        self._is_one = len(header.frames) == 1
        self._own: Blake3Stream | None = None
        self._whole = Blake3Stream() if with_blake3 and not self._is_one else None

    def add(self, data: Buffer) -> None:
        """Take in more of them. Raises ``Corrupt`` at the end of a frame that is damaged."""
        view = memoryview(data)
        while len(view):
            if not self._left:
                self._begin_frame()
            piece, view = view[: self._left], view[self._left :]
            self._left -= len(piece)
            self._take(piece)
            if not self._left:
                self._end_frame()

    def end(self) -> Checked:
        """What was seen. Raises ``Corrupt`` unless it was all of the object."""
        if self._sha.digest() != self._header.digest:
            raise Corrupt(f"{self._what}: bytes do not match their digest", hint="kvg fsck")
        if self._is_one:
            return Checked(self._header.frames[0].blake3.hex(), bytes(self._head))
        blake3 = None if self._whole is None else self._whole.digest().hex()
        return Checked(blake3, bytes(self._head))

    def _begin_frame(self) -> None:
        self._frame = next(self._frames, None)
        if self._frame is None:
            raise Corrupt(f"{self._what}: longer than its header says", hint="kvg fsck")
        self._left = self._frame[1].raw_size
        self._own = Blake3Stream() if self._with_blake3 else None

    def _take(self, piece: memoryview) -> None:
        self._sha.update(piece)
        for stream in (self._own, self._whole):
            if stream is not None:
                stream.update(piece)
        if len(self._head) < self._head_bytes:
            self._head += piece[: self._head_bytes - len(self._head)]

    def _end_frame(self) -> None:
        if self._own is None or self._frame is None:
            return
        index, frame = self._frame
        if self._own.digest() != frame.blake3:
            raise Corrupt(
                f"{self._what}: frame {index} does not match its checksum", hint="kvg fsck"
            )


def _raw_pieces(
    read_into: ReadInto, header: Header, what: str, buffer: memoryview
) -> Iterable[memoryview]:
    """The raw bytes of a stored form, in turn, each piece in ``buffer``."""
    position, left = header.data_offset, header.raw_size
    while left:
        piece = buffer[:left]
        n = read_into(piece, position)
        if n == 0:
            raise Corrupt(f"{what}: became shorter while it was read", hint="kvg fsck")
        position, left = position + n, left - n
        yield piece[:n]
