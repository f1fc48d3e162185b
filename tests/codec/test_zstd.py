from __future__ import annotations

import subprocess
import sys
from random import Random

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kvg.codec import zstd
from kvg.errors import Corrupt

TEXT = b"the same words, the same words, the same words. " * 50
FRAME = zstd.compress(TEXT)
MAGIC = b"\x28\xb5\x2f\xfd"


def expand(stored: bytes, size: int) -> bytes:
    return zstd.expand(stored, size, what="x")


def without_size(raw: bytes, **options: bool) -> bytes:
    return zstandard.ZstdCompressor(level=1, write_content_size=False, **options).compress(raw)


def block(kind: int, size: int, body: bytes, *, is_last: bool) -> bytes:
    return (size << 3 | kind << 1 | is_last).to_bytes(3, "little") + body


@given(st.binary(max_size=2000))
def test_a_frame_comes_back(raw: bytes) -> None:
    assert expand(zstd.compress(raw), len(raw)) == raw


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65791, 65792, 128 * 1024 + 1, 3_000_000])
def test_every_width_of_the_declared_size_is_read(size: int) -> None:
    raw = (TEXT * (size // len(TEXT) + 1))[:size]
    assert expand(zstd.compress(raw), size) == raw


def test_frames_of_other_encoders_are_read() -> None:
    streamed = zstandard.ZstdCompressor(level=19, write_checksum=True).compressobj()
    for stored in (
        without_size(TEXT),
        without_size(TEXT, write_checksum=True),
        streamed.compress(TEXT) + streamed.flush(),
        MAGIC + b"\x20\x03" + block(0, 3, b"abc", is_last=True),
        MAGIC + b"\x00\x58" + block(1, 3, b"a", is_last=False) + block(0, 0, b"", is_last=True),
    ):
        size = len(TEXT) if len(stored) > 20 else 3
        assert expand(stored, size) in (TEXT, b"abc", b"aaa")


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        MAGIC,
        b"\x28\xb5\x2f\xfc" + FRAME[4:],
        FRAME[:-1],
        FRAME + b"\0",
        FRAME + FRAME,
        FRAME + zstd.compress(b""),
        b"\x50\x2a\x4d\x18\x04\0\0\0abcd" + FRAME,
        FRAME + b"\x50\x2a\x4d\x18\x04\0\0\0abcd",
        MAGIC + b"\x21\x03\x07" + block(0, 3, b"abc", is_last=True),
        MAGIC + b"\x28\x03" + block(0, 3, b"abc", is_last=True),
        MAGIC + b"\x30\x03" + block(0, 3, b"abc", is_last=True),
        MAGIC + b"\x20\x03" + block(3, 3, b"abc", is_last=True),
        MAGIC + b"\x20\x03" + block(0, 3, b"abc", is_last=False),
        MAGIC + b"\x24\x03" + block(0, 3, b"abc", is_last=True) + bytes(4),
        MAGIC + b"\x24\x03" + block(0, 3, b"abc", is_last=True),
        MAGIC + b"\x20\x03" + block(2, 3, b"abc", is_last=True),
    ],
)
def test_malformed_frames_are_corrupt(stored: bytes) -> None:
    for size in (3, len(TEXT)):
        with pytest.raises(Corrupt, match=r"^x: "):
            expand(stored, size)


@pytest.mark.parametrize("size", [0, 1, len(TEXT) - 1, len(TEXT) + 1])
def test_another_size_than_stated_is_corrupt(size: int) -> None:
    for stored in (FRAME, without_size(TEXT), without_size(TEXT, write_checksum=True)):
        with pytest.raises(Corrupt, match=r"^x: "):
            expand(stored, size)


def test_a_large_window_is_corrupt() -> None:
    for exponent in (14, 17, 31):
        stored = MAGIC + bytes([0, exponent << 3]) + block(0, 3, b"abc", is_last=True)
        with pytest.raises(Corrupt, match="window"):
            expand(stored, 3)
    largest = MAGIC + bytes([0, 13 << 3]) + block(0, 3, b"abc", is_last=True)
    assert expand(largest, 3) == b"abc"


def test_a_dictionary_is_corrupt() -> None:
    dictionary = zstandard.ZstdCompressionDict(TEXT)
    stored = zstandard.ZstdCompressor(dict_data=dictionary).compress(TEXT)
    with pytest.raises(Corrupt, match=r"^x: "):
        expand(stored, len(TEXT))


BOMBS = {
    "declares gigabytes": MAGIC
    + b"\xa0"
    + (1 << 31).to_bytes(4, "little")
    + block(1, 1 << 17, b"a", is_last=True),
    "declares the size wanted": MAGIC
    + b"\x60"
    + (1000 - 256).to_bytes(2, "little")
    + block(1, 1 << 17, b"a", is_last=False) * 8192
    + block(0, 0, b"", is_last=True),
    "declares nothing": MAGIC
    + b"\x00\x68"
    + block(1, 1 << 17, b"a", is_last=False) * 8192
    + block(0, 0, b"", is_last=True),
}


@pytest.mark.parametrize("name", BOMBS)
def test_field_s19_a_bomb_is_corrupt_and_takes_no_memory(name: str) -> None:
    with pytest.raises(Corrupt, match=r"^x: "):
        expand(BOMBS[name], 1000)
    program = (
        "import sys, resource; from kvg.codec import zstd; from kvg.errors import Corrupt\n"
        "import zstandard; stored = memoryview(sys.stdin.buffer.read())\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try: zstd.expand(stored, 1000, what='x')\n"
        "except Corrupt: pass\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=BOMBS[name], capture_output=True, check=True
    )
    grown_bytes = int(done.stdout) * 1024
    assert grown_bytes < 24 * 1024 * 1024


@given(st.binary(max_size=100), st.integers(0, 300))
def test_arbitrary_bytes_are_corrupt(data: bytes, size: int) -> None:
    for stored in (data, MAGIC + data, MAGIC + b"\x00\x58" + data):
        try:
            expand(stored, size)
        except Corrupt:
            continue


@given(st.data())
def test_a_changed_frame_gives_that_many_bytes_or_is_corrupt(data: st.DataObject) -> None:
    stored = bytearray(data.draw(st.sampled_from([FRAME, without_size(TEXT)])))
    stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert len(expand(bytes(stored), len(TEXT))) == len(TEXT)
    except Corrupt:
        return


@pytest.mark.parametrize("size", [0, 1, (1 << 16) - 1, 1 << 16, 300_001])
def test_planes_come_back_and_pack_no_worse(size: int) -> None:
    """Bytes as the exponents of weights have them: few values, no repeats to be found."""
    drawn = Random(size)
    plane = bytes(min(15, int(drawn.expovariate(0.7))) for _ in range(size))
    packed = zstd.compress_plane(plane)
    assert expand(packed, size) == plane
    assert len(packed) <= len(zstd.compress(plane))


@pytest.mark.parametrize("size", [1000, 1 << 21])
def test_only_long_planes_without_anything_to_pack_are_left(size: int) -> None:
    noise = Random(size).randbytes(size)
    is_long = size >= 1 << 21
    assert zstd.is_dense(noise) is is_long
    assert not zstd.is_dense(bytes(byte & 0x7F for byte in noise))
    middle = bytearray(noise)
    middle[size // 2 : size // 2 + zstd.SAMPLE_BYTES] = bytes(zstd.SAMPLE_BYTES)
    assert not zstd.is_dense(middle)
