"""One zstd frame (RFC 8878), in and out. Reading is bounded by sizes known beforehand.

A frame of 13 bytes can declare gigabytes. ``expand`` therefore walks the frame before it asks zstd
for anything: one frame, no dictionary, nothing after it, a small window, a declared size only if it
is the size wanted. Then it inflates into memory for as many bytes as the caller has measured.
"""

from __future__ import annotations

from kvg.digest import Buffer
from kvg.errors import Corrupt

LEVEL = 1
LONG_PLANE_BYTES = 1 << 16
PLANE_MATCH, PLANE_HASH_LOG, PLANE_WINDOW_LOG = 7, 8, 20
"""How long planes are searched for repeats: there are next to none, and looking for short ones
takes near twice the time and packs less well (bf16 pages: 0.367 of a plane, not 0.373)."""

SAMPLE_BYTES = 1 << 16
SAMPLES = 3
"""Long planes that pack by nothing at so many places are not packed: the low bytes of numbers."""

MAX_WINDOW = 8 * 1024 * 1024
_MAGIC = b"\x28\xb5\x2f\xfd"
_RLE, _RESERVED = 1, 3
_ZSTD_LIMIT = 1 << 31


def compress(raw: Buffer) -> bytes:
    """One zstd frame that declares its size and carries no checksum of its own."""
    import zstandard

    return zstandard.ZstdCompressor(level=LEVEL, write_checksum=False).compress(raw)


def compress_plane(plane: Buffer) -> bytes:
    """As ``compress``, for one byte of each of many numbers."""
    if len(plane) < LONG_PLANE_BYTES:
        return compress(plane)
    import zstandard

    settings = zstandard.ZstdCompressionParameters(
        strategy=zstandard.STRATEGY_FAST,
        min_match=PLANE_MATCH,
        hash_log=PLANE_HASH_LOG,
        chain_log=PLANE_HASH_LOG,
        search_log=1,
        window_log=PLANE_WINDOW_LOG,
        target_length=0,
        write_content_size=True,
        write_checksum=False,
    )
    return zstandard.ZstdCompressor(compression_params=settings).compress(plane)


def is_dense(plane: Buffer) -> bool:
    """Whether a long plane packs by nothing wherever it is tried; a short one is to be tried whole.

    The places are away from the ends, where what is no number would lie.
    """
    if len(plane) < 8 * SAMPLES * SAMPLE_BYTES:
        return False
    view = memoryview(plane)
    starts = (len(view) * n // (SAMPLES + 1) for n in range(1, SAMPLES + 1))
    return all(
        len(compress_plane(view[start : start + SAMPLE_BYTES])) >= SAMPLE_BYTES for start in starts
    )


def expand(stored: Buffer, size: int, *, what: str) -> bytes:
    """The ``size`` bytes that the one frame ``stored`` stands for.

    Raises ``Corrupt`` naming ``what`` on anything else.
    """
    import zstandard

    view = memoryview(stored)
    _check_frame(view, size, what=what)
    window = min(max(MAX_WINDOW, size), _ZSTD_LIMIT)
    try:
        found = zstandard.ZstdDecompressor(max_window_size=window).decompress(
            view, max_output_size=size, read_across_frames=False
        )
    except zstandard.ZstdError:
        raise Corrupt(f"{what}: malformed zstd frame", hint="kvg fsck") from None
    if len(found) != size:
        raise Corrupt(f"{what}: zstd frame of another size than stated", hint="kvg fsck")
    return found


def _check_frame(stored: memoryview, size: int, *, what: str) -> None:
    """Raise ``Corrupt`` unless ``stored`` is one whole frame that may be inflated to ``size``."""
    try:
        end = _find_end(stored, _find_blocks(stored, size))
        if end != len(stored):
            raise ValueError(f"{len(stored)} bytes for a frame of {end}")
    except IndexError:
        raise Corrupt(f"{what}: zstd frame cut short", hint="kvg fsck") from None
    except ValueError as error:
        raise Corrupt(f"{what}: malformed zstd frame: {error}", hint="kvg fsck") from None


def _find_blocks(stored: memoryview, size: int) -> int:
    """Where the blocks begin. ``ValueError`` on a header that asks for what is not allowed."""
    descriptor = stored[4]
    if stored[:4] != _MAGIC:
        raise ValueError("another kind of frame")
    if descriptor & 0b11011:
        raise ValueError("reserved bits or a dictionary")
    is_single = descriptor >> 5 & 1
    position = 5 if is_single else 6
    if not is_single and (8 + (stored[5] & 7)) << (7 + (stored[5] >> 3)) > MAX_WINDOW:
        raise ValueError("a window past the limit")
    size_bytes = (is_single, 2, 4, 8)[descriptor >> 6]
    declared = int.from_bytes(stored[position : position + size_bytes], "little")
    declared += 256 if size_bytes == 2 else 0
    if size_bytes and declared != size:
        raise ValueError(f"{declared} bytes declared, not {size}")
    return position + size_bytes


def _find_end(stored: memoryview, position: int) -> int:
    """Where the frame ends whose blocks begin at ``position``. ``IndexError`` when cut short."""
    is_last = False
    while not is_last:
        head = stored[position] | stored[position + 1] << 8 | stored[position + 2] << 16
        is_last, kind = bool(head & 1), head >> 1 & 3
        if kind == _RESERVED:
            raise ValueError("a block of the reserved kind")
        position += 3 + (1 if kind == _RLE else head >> 3)
    return position + (4 if stored[4] & 4 else 0)
