"""The header of a stored object (KVZ1): what it holds, frame by frame.

::

    0   "KVZ1" | u8 codec | u8 planes | u16 0 | u64 raw_size | u32 frame_raw_size | u32 n_frames
        | u32 data_offset | u32 0 | 32 B SHA-256 of the raw bytes
    64  per frame: u32 raw_size, per plane (u32 stored_size, u32 coding), 32 B BLAKE3 of its bytes
    ..  32 B BLAKE3 of all header bytes before it; zero padding up to data_offset; the frames

All integers are little-endian. Reading takes no more memory than the header's own bytes.
"""

from __future__ import annotations

import struct

from kvg.digest import Buffer, Digest, blake3_bytes, from_raw, raw_of
from kvg.errors import Corrupt, Incompatible
from kvg.frozen import frozen

RAW = 0
ZSTD = 1
PLANES = 2
ENCRYPTED = 3
"""Codecs. 3 is reserved."""

AS_IS = 0
COMPRESSED = 1
"""Codings of one plane of a frame."""

FRAME_SIZE = 8 * 1024 * 1024
ALIGNMENT = 4096
FIRST_BYTES = 2 * ALIGNMENT
"""Bytes that are read for the header and the padding after it; most headers are short."""

MAX_FRAMES = 1 << 16
"""Frames of one object at most: half a tebibyte at the usual size, 5 MB of header."""

PREFIX_SIZE = 64
HASH_SIZE = 32

_MAGIC = b"KVZ1"
_PREFIX = struct.Struct("<4sBBHQIIII32s")
_PLANES = {RAW: (1,), ZSTD: (1,), PLANES: (2, 4)}


@frozen
class Frame:
    """One frame: ``planes`` holds (stored bytes, coding) for each plane in turn."""

    raw_size: int
    planes: tuple[tuple[int, int], ...]
    blake3: bytes

    def __post_init__(self) -> None:
        for plane, (stored_size, coding) in enumerate(self.planes):
            if coding == AS_IS and stored_size != self.plane_raw_size(plane):
                raise ValueError("wrong sizes in the frame table")
            if coding not in (AS_IS, COMPRESSED):
                raise ValueError("unknown coding in the frame table")

    @property
    def stored_size(self) -> int:
        return sum(size for size, _ in self.planes)

    def plane_raw_size(self, plane: int) -> int:
        """Bytes of ``plane`` before coding: every byte at an index equal to it modulo planes."""
        n = len(self.planes)
        return (self.raw_size - plane + n - 1) // n


@frozen
class Header:
    """A header that says what an encoder would have said of its sizes.

    ``digest`` is the claim of the header, not yet proved of the bytes. Raises ``ValueError``.
    """

    codec: int
    planes: int
    raw_size: int
    frame_raw_size: int
    frames: tuple[Frame, ...]
    data_offset: int
    digest: Digest

    def __post_init__(self) -> None:
        if self.planes not in planes_of(self.codec):
            raise ValueError(f"codec {self.codec} with {self.planes} planes")
        if len(self.frames) != _count_frames(self.raw_size, self.frame_raw_size):
            raise ValueError("wrong number of frames")
        if not 0 <= self.data_offset - self.size < (ALIGNMENT if self.codec == RAW else 1):
            raise ValueError("wrong offset of the frames")
        rest = self.raw_size
        for frame in self.frames:
            if frame.raw_size != min(self.frame_raw_size, rest):
                raise ValueError("wrong sizes in the frame table")
            if self.codec == RAW and frame.planes[0][1] != AS_IS:
                raise ValueError("a compressed frame in a raw object")
            rest -= frame.raw_size

    @property
    def size(self) -> int:
        """Bytes of the header up to the padding."""
        return header_size(len(self.frames), self.planes)

    @property
    def stored_size(self) -> int:
        """Bytes of the whole stored form."""
        return self.data_offset + sum(frame.stored_size for frame in self.frames)


def header_size(n_frames: int, planes: int) -> int:
    """Bytes of a header of ``n_frames`` frames, its own BLAKE3 included, without padding."""
    return PREFIX_SIZE + n_frames * _frame_record(planes).size + HASH_SIZE


def planes_of(codec: int) -> tuple[int, ...]:
    """The numbers of planes that ``codec`` allows; empty for a codec that kvg does not write."""
    return _PLANES.get(codec, ())


def encode_header(header: Header) -> bytes:
    """The header's bytes with the padding up to ``data_offset``.

    Raises ``ValueError`` when a size does not fit its field.
    """
    if len(header.frames) > MAX_FRAMES:
        raise ValueError(f"{len(header.frames)} frames, at most {MAX_FRAMES}")
    try:
        prefix = _PREFIX.pack(
            _MAGIC,
            header.codec,
            header.planes,
            0,
            header.raw_size,
            header.frame_raw_size,
            len(header.frames),
            header.data_offset,
            0,
            raw_of(header.digest),
        )
        record = _frame_record(header.planes)
        table = b"".join(
            record.pack(frame.raw_size, *(n for plane in frame.planes for n in plane), frame.blake3)
            for frame in header.frames
        )
    except struct.error as error:
        raise ValueError(f"header out of bounds: {error}") from None
    body = prefix + table
    return (body + blake3_bytes(body)).ljust(header.data_offset, b"\0")


def parse_header_size(stored: Buffer, *, what: str) -> int:
    """Bytes to read for the whole header, from its first ``PREFIX_SIZE`` bytes.

    Nothing is proved yet, but the answer is bounded by ``MAX_FRAMES``. Raises ``Corrupt``.
    """
    view = memoryview(stored).cast("B")
    if len(view) < PREFIX_SIZE or view[:4] != _MAGIC:
        raise Corrupt(f"{what}: not a stored object", hint="kvg fsck")
    planes, n_frames = view[5], int.from_bytes(view[20:24], "little")
    if planes not in (1, 2, 4) or n_frames > MAX_FRAMES:
        raise Corrupt(f"{what}: {n_frames} frames of {planes} planes", hint="kvg fsck")
    return header_size(n_frames, planes)


def parse_header(stored: Buffer, *, what: str) -> Header:
    """The header at the start of the untrusted ``stored``, which may end where the header ends.

    Checked: its own BLAKE3, every reserved bit, that the frames are exactly those of its sizes.
    Raises ``Corrupt`` naming ``what``; ``Incompatible`` for the reserved codec.
    """
    view = memoryview(stored).cast("B")
    size = parse_header_size(view, what=what)
    if len(view) < size:
        raise Corrupt(f"{what}: stored object cut short in its header", hint="kvg fsck")
    if blake3_bytes(view[: size - HASH_SIZE]) != view[size - HASH_SIZE : size]:
        raise Corrupt(f"{what}: header does not match its checksum", hint="kvg fsck")
    if view[4] == ENCRYPTED:
        raise Incompatible(f"{what}: encrypted object", hint="update kvg")
    try:
        return _unpack(view[: size - HASH_SIZE])
    except ValueError as error:
        raise Corrupt(f"{what}: malformed header: {error}", hint="kvg fsck") from None


def _unpack(view: memoryview) -> Header:
    _, codec, planes, zero, raw_size, frame_raw_size, _, data_offset, zero_2, raw = (
        _PREFIX.unpack_from(view)
    )
    if zero or zero_2:
        raise ValueError("reserved bits are set")
    frames = tuple(
        Frame(row[0], tuple(zip(row[1:-1:2], row[2:-1:2], strict=True)), row[-1])
        for row in _frame_record(planes).iter_unpack(view[PREFIX_SIZE:])
    )
    return Header(codec, planes, raw_size, frame_raw_size, frames, data_offset, from_raw(raw))


def _frame_record(planes: int) -> struct.Struct:
    return struct.Struct(f"<I{2 * planes}I32s")


def _count_frames(raw_size: int, frame_raw_size: int) -> int:
    return -(-raw_size // frame_raw_size) if frame_raw_size else -1
