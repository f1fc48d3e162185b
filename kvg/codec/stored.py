"""Objects in their stored form (KVZ1): encode once, decode strictly.

The digest of an object is that of its raw bytes; how it is stored never changes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvg.codec import zstd
from kvg.codec.header import (
    ALIGNMENT,
    AS_IS,
    COMPRESSED,
    FRAME_SIZE,
    PLANES,
    RAW,
    Frame,
    Header,
    encode_header,
    header_size,
    parse_header,
    planes_of,
)
from kvg.codec.planes import Join, Split, join_in_turn, split_planes
from kvg.digest import Buffer, Digest, Sha256Stream, blake3_all, blake3_bytes
from kvg.errors import Corrupt
from kvg.frozen import frozen
from kvg.parallel import in_order

JOIN_BYTES = 256 << 10
"""Raw bytes whose planes are put together at once; a multiple of every number of planes."""

DEFAULT_LIMIT = 1 << 30
"""Bytes: the largest object that ``decode`` makes room for unless told otherwise."""


@frozen
class Stored:
    """An object ready to be written.

    ``header`` reaches to the first frame. ``frames`` holds the frames' bytes in order, one buffer
    for each plane; for codec 0 they are views of the raw bytes, so keep those unchanged.
    """

    header: bytes
    frames: tuple[Buffer, ...]

    @property
    def size_bytes(self) -> int:
        return len(self.header) + sum(len(part) for part in self.frames)

    def parts(self) -> Iterator[Buffer]:
        """The buffers to write, in order."""
        yield self.header
        yield from self.frames


def encode(
    raw: Buffer,
    *,
    digest: Digest,
    codec: int,
    planes: int = 1,
    data_start: int = 0,
    threads: int = 1,
    frame_size: int = FRAME_SIZE,
    blake3: bytes | None = None,
    split: Split = split_planes,
) -> Stored:
    """The stored form of ``raw``, whose SHA-256 is ``digest`` (believed, not computed again).

    ``planes`` is the element size for codec 2 (2 or 4), else 1. ``data_start`` is the offset in
    ``raw`` that codec 0 puts on a 4096 boundary. Codec 0 copies nothing. ``threads`` work on
    different frames. ``blake3`` is that of all of ``raw`` where the caller has taken it (believed
    too). ``split`` takes planes apart. Raises ``ValueError`` on parameters that the format does not
    have.
    """
    if planes not in planes_of(codec) or not 0 < frame_size < 2**32 or data_start < 0:
        raise ValueError(f"codec {codec}, {planes} planes, frames of {frame_size} bytes")
    view = memoryview(raw).cast("B")
    pieces = [view[start : start + frame_size] for start in range(0, len(view), frame_size)]
    known = blake3 if len(pieces) == 1 else None
    done = list(
        in_order(
            lambda piece: _encode_frame(piece, codec, planes, split, known),
            pieces,
            threads=min(threads, len(pieces)),
        )
    )
    offset = header_size(len(pieces), planes)
    if codec == RAW:
        offset += -(offset + data_start) % ALIGNMENT
    frames = tuple(frame for frame, _ in done)
    header = Header(codec, planes, len(view), frame_size, frames, offset, digest)
    return Stored(encode_header(header), tuple(part for _, parts in done for part in parts))


def decode(
    stored: Buffer,
    *,
    digest: Digest,
    size: int | None,
    what: str,
    threads: int = 1,
    check_digest: bool = True,
    check_frames: bool = True,
    limit: int = DEFAULT_LIMIT,
    join: Join | None = None,
) -> memoryview:
    """The raw bytes of the whole, untrusted ``stored`` object ``digest``, read-only.

    Checked before any memory is taken: the header, that it speaks of ``digest`` and of ``size``
    bytes (any up to ``limit`` where None), that ``stored`` has the length it gives. Then the
    padding, the BLAKE3 of each frame and, with ``check_digest``, the SHA-256 of the whole. Codec 0
    gives a view of ``stored``. ``check_frames``: False leaves out the BLAKE3 of raw frames, whose
    bytes the SHA-256 of the whole covers. ``join`` puts planes together. Raises ``Corrupt`` naming
    ``what``.
    """
    view = memoryview(stored).cast("B").toreadonly()
    header = parse_header(view, what=what)
    check_claims(header, len(view), digest=digest, size=size, limit=limit, what=what)
    check_padding(view[header.size : header.data_offset], what=what)
    hasher = Sha256Stream()
    source = (
        _RawSource(view, header, what, is_checked=check_frames or not check_digest)
        if header.codec == RAW
        else _Inflater(view, header, what, join)
    )
    n = len(header.frames)
    for piece in in_order(source.frame, range(n), threads=min(threads, n)):
        if check_digest:
            hasher.update(piece)
    if check_digest and hasher.digest() != digest:
        raise Corrupt(f"{what}: bytes do not match their digest", hint="kvg fsck")
    return source.raw


def check_claims(
    header: Header, n_stored: int, *, digest: Digest, size: int | None, limit: int, what: str
) -> None:
    """Raise ``Corrupt`` unless ``header`` speaks of ``digest``, of ``size`` raw bytes (up to
    ``limit`` where None) and of ``n_stored`` bytes in stored form."""
    if header.digest != digest:
        raise Corrupt(f"{what}: another object lies under its name", hint="kvg fsck")
    if header.raw_size != size if size is not None else header.raw_size > limit:
        wanted = f"{size}" if size is not None else f"at most {limit}"
        raise Corrupt(f"{what}: {header.raw_size} bytes, not {wanted}", hint="kvg fsck")
    if header.stored_size != n_stored:
        raise Corrupt(f"{what}: {n_stored} stored bytes, not {header.stored_size}", hint="kvg fsck")


def check_padding(padding: memoryview, *, what: str) -> None:
    """Raise ``Corrupt`` unless what lies between header and frames is zero."""
    if padding != bytes(len(padding)):
        raise Corrupt(f"{what}: padding is not zero", hint="kvg fsck")


def _encode_frame(
    piece: memoryview, codec: int, planes: int, split: Split, blake3: bytes | None
) -> tuple[Frame, tuple[Buffer, ...]]:
    """``blake3`` is that of ``piece`` where it is known."""
    if codec == RAW:
        return Frame(len(piece), ((len(piece), AS_IS),), blake3 or blake3_bytes(piece)), (piece,)
    if codec == PLANES:
        coded = [_packed(plane) for plane in split(piece, planes)]
    else:
        coded = [_kept(piece, zstd.compress(piece))]
    parts = tuple(part for part, _ in coded)
    table = tuple((len(part), coding) for part, coding in coded)
    return Frame(len(piece), table, bytes.fromhex(blake3_all(parts))), parts


def _packed(plane: Buffer) -> tuple[Buffer, int]:
    if zstd.is_dense(plane):
        return plane, AS_IS
    return _kept(plane, zstd.compress_plane(plane))


def _kept(plane: Buffer, packed: bytes) -> tuple[Buffer, int]:
    """``plane`` as it is packed, or as it is when that gains under 2 %."""
    if len(packed) * 100 > len(plane) * 98:
        return plane, AS_IS
    return packed, COMPRESSED


class _RawSource:
    """Frames of codec 0, where they lie."""

    def __init__(self, view: memoryview, header: Header, what: str, *, is_checked: bool) -> None:
        self._is_checked = is_checked
        self.raw = view[header.data_offset :]
        self._header = header
        self._what = what

    def frame(self, index: int) -> memoryview:
        frame, start = self._header.frames[index], index * self._header.frame_raw_size
        piece = self.raw[start : start + frame.raw_size]
        if self._is_checked:
            _check_frame(piece, frame, index, what=self._what)
        return piece


class _Inflater:
    """Frames of codecs 1 and 2: inflated side by side into one buffer."""

    def __init__(self, view: memoryview, header: Header, what: str, join: Join | None) -> None:
        self._join_planes = join or join_in_turn
        self._buffer = bytearray(header.raw_size)
        self._view = view
        self._header = header
        self._what = what
        self._starts = _frame_starts(header)

    @property
    def raw(self) -> memoryview:
        return memoryview(self._buffer).toreadonly()

    def frame(self, index: int) -> memoryview:
        frame, start = self._header.frames[index], self._starts[index]
        stored = self._view[start : start + frame.stored_size]
        _check_frame(stored, frame, index, what=self._what)
        first = index * self._header.frame_raw_size
        target = memoryview(self._buffer)[first : first + frame.raw_size]
        if self._header.planes == 1:
            target[:] = self._plane(stored, frame, 0)
        else:
            self._join(self._planes(stored, frame), target)
        return target

    def _planes(self, stored: memoryview, frame: Frame) -> list[memoryview]:
        planes, position = [], 0
        for index, (size, _) in enumerate(frame.planes):
            planes.append(self._plane(stored[position : position + size], frame, index))
            position += size
        return planes

    def _plane(self, stored: memoryview, frame: Frame, index: int) -> memoryview:
        if frame.planes[index][1] == AS_IS:
            return stored
        return memoryview(zstd.expand(stored, frame.plane_raw_size(index), what=self._what))

    def _join(self, planes: Sequence[memoryview], target: memoryview) -> None:
        """Bit by bit, so that what is put together stays in the core's cache."""
        n = len(planes)
        for start in range(0, len(target), JOIN_BYTES):
            piece = target[start : start + JOIN_BYTES]
            at = start // n
            parts = [
                plane[at : at + (len(piece) - index + n - 1) // n]
                for index, plane in enumerate(planes)
            ]
            self._join_planes(parts, piece, len(piece))


def _frame_starts(header: Header) -> list[int]:
    starts, position = [], header.data_offset
    for frame in header.frames:
        starts.append(position)
        position += frame.stored_size
    return starts


def _check_frame(stored: memoryview, frame: Frame, index: int, *, what: str) -> None:
    if blake3_bytes(stored) != frame.blake3:
        raise Corrupt(f"{what}: frame {index} does not match its checksum", hint="kvg fsck")
