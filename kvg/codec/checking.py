"""Checking an object of codec 0 where it lies: as ``decode`` does, but never holding it whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kvg.codec.header import ALIGNMENT, RAW, Frame, Header, parse_header, parse_header_size
from kvg.codec.stored import DEFAULT_LIMIT, check_claims, check_padding
from kvg.digest import Blake3Stream, Digest, Sha256Stream
from kvg.errors import Corrupt
from kvg.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvg.buffers import Buffers

PIECE_BYTES = 256 << 10
"""Bytes at once: they stay in a core's cache while both hashes go over them."""

LONE_PIECE_BYTES = 1 << 20
"""Bytes at once where only one hash goes over them: threads then seldom wait for each other."""

FIRST_BYTES = 2 * ALIGNMENT
"""Bytes that are read for the header and the padding after it; most headers are short."""

HEAD_BYTES = 64 << 10
"""As many are read where the header says that it is longer than that."""

ReadInto = Callable[[memoryview, int], int]
"""Fills a buffer from a position of the stored form; gives how many bytes there were."""


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
) -> Checked | None:
    """Check every byte of an object of ``n_stored`` bytes in stored form, in constant memory.

    None, before anything but the header was checked, for one that is compressed or whose header is
    too long for this: ``decode`` that. ``head_bytes``: how many of the first raw bytes to give
    back. ``with_blake3``: False takes the SHA-256 of the whole alone. ``buffers`` are used for all
    of it. Raises ``Corrupt`` naming ``what`` as ``decode`` does.
    """
    from kvg.buffers import Buffers

    buffers = buffers or Buffers()
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
    piece_bytes = min(PIECE_BYTES if with_blake3 else LONE_PIECE_BYTES, header.raw_size)
    piece = buffers.take("piece", piece_bytes, at=header.data_offset)
    reading = _Reading(read_into, header, what, piece)
    return reading.check(digest, head_bytes, with_blake3)


class _Reading:
    def __init__(self, read_into: ReadInto, header: Header, what: str, buffer: memoryview) -> None:
        self._read_into = read_into
        self._header = header
        self._what = what
        self._buffer = buffer
        self._position = header.data_offset

    def check(self, digest: Digest, head_bytes: int, with_blake3: bool) -> Checked:
        sha, head = Sha256Stream(), bytearray()
        frames: Sequence[Frame] = self._header.frames
        is_one = len(frames) == 1
        whole = Blake3Stream() if with_blake3 and not is_one else None
        for index, frame in enumerate(frames):
            own, left = Blake3Stream() if with_blake3 else None, frame.raw_size
            while left:
                piece = self._next(left)
                sha.update(piece)
                for stream in (own, whole):
                    if stream is not None:
                        stream.update(piece)
                if len(head) < head_bytes:
                    head += piece[: head_bytes - len(head)]
                left -= len(piece)
            if own is not None and own.digest() != frame.blake3:
                raise Corrupt(
                    f"{self._what}: frame {index} does not match its checksum", hint="kvg fsck"
                )
        if sha.digest() != digest:
            raise Corrupt(f"{self._what}: bytes do not match their digest", hint="kvg fsck")
        if is_one:
            return Checked(frames[0].blake3.hex(), bytes(head))
        return Checked(None if whole is None else whole.digest().hex(), bytes(head))

    def _next(self, left: int) -> memoryview:
        piece = self._buffer[:left]
        n = self._read_into(piece, self._position)
        if n == 0:
            raise Corrupt(f"{self._what}: became shorter while it was read", hint="kvg fsck")
        self._position += n
        return piece[:n]
