"""One zstd frame (RFC 8878), in and out. Reading is bounded by sizes known beforehand.

A frame of 13 bytes can declare gigabytes. ``expand_into`` therefore walks the frame before it asks
zstd for anything: one frame, no dictionary, nothing after it, a small window, a declared size only
if it is the size wanted; then it inflates by stream into memory that the caller has measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvg.digest import Buffer
from kvg.errors import Corrupt

if TYPE_CHECKING:
    import zstandard

LEVEL = 1
MAX_WINDOW = 8 * 1024 * 1024
_MAGIC = b"\x28\xb5\x2f\xfd"
_RLE, _RESERVED = 1, 3


def compress(raw: Buffer) -> bytes:
    """One zstd frame that declares its size and carries no checksum of its own."""
    import zstandard

    return zstandard.ZstdCompressor(level=LEVEL, write_checksum=False).compress(raw)


def expand_into(stored: memoryview, target: memoryview, *, what: str) -> None:
    """Inflate the one frame ``stored`` into ``target``, which it fills exactly.

    Raises ``Corrupt`` naming ``what`` on anything else.
    """
    import zstandard

    _check_frame(stored, len(target), what=what)
    inflater = zstandard.ZstdDecompressor(max_window_size=max(MAX_WINDOW, len(target)))
    try:
        with inflater.stream_reader(stored, read_across_frames=False) as reader:
            n = _fill(reader, target)
            excess = reader.read(1)
    except zstandard.ZstdError:
        raise Corrupt(f"{what}: malformed zstd frame", hint="kvg fsck") from None
    if n != len(target) or excess:
        raise Corrupt(f"{what}: zstd frame of another size than stated", hint="kvg fsck")


def _fill(reader: zstandard.ZstdDecompressionReader, target: memoryview) -> int:
    n = 0
    while n < len(target):
        got = reader.readinto(target[n:])
        if not got:
            break
        n += got
    return n


def _check_frame(stored: memoryview, size: int, *, what: str) -> None:
    """Raise ``Corrupt`` unless ``stored`` is one whole frame that may be inflated to ``size``."""
    try:
        is_sound = _frame_end(stored, size) == len(stored)
    except IndexError:
        is_sound = False
    if not is_sound:
        raise Corrupt(f"{what}: malformed zstd frame", hint="kvg fsck")


def _frame_end(stored: memoryview, size: int) -> int:
    """Where the frame ends, -1 when it is refused; ``IndexError`` when cut short."""
    position = _blocks_start(stored, size)
    is_last = position < 0
    while not is_last:
        head = stored[position] | stored[position + 1] << 8 | stored[position + 2] << 16
        is_last, kind = bool(head & 1), head >> 1 & 3
        if kind == _RESERVED:
            return -1
        position += 3 + (1 if kind == _RLE else head >> 3)
    return position + (4 if position >= 0 and stored[4] & 4 else 0)


def _blocks_start(stored: memoryview, size: int) -> int:
    """Where the blocks begin, or -1 when the frame header is refused."""
    descriptor = stored[4]
    is_single, size_flag = descriptor >> 5 & 1, descriptor >> 6
    if stored[:4] != _MAGIC or descriptor & 0b11011:
        return -1
    position = 5
    if not is_single:
        exponent, mantissa = stored[5] >> 3, stored[5] & 7
        position += 1
        if (8 + mantissa) << (7 + exponent) > MAX_WINDOW:
            return -1
    size_bytes = (is_single, 2, 4, 8)[size_flag]
    declared = int.from_bytes(stored[position : position + size_bytes], "little")
    declared += 256 if size_bytes == 2 else 0
    if size_bytes and declared != size:
        return -1
    return position + size_bytes
