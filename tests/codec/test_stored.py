from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kvg import codec
from kvg.codec import PLANES, RAW, ZSTD, decode, encode, parse_header
from kvg.digest import Digest, blake3_bytes, blake3_hex, sha256
from kvg.errors import Corrupt

Forge = Callable[..., tuple[bytes, Digest]]
CODECS = [(RAW, 1), (ZSTD, 1), (PLANES, 2), (PLANES, 4)]
VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "kvz1.json").read_text())["kvz1"]
NAMES = [vector["name"] for vector in VECTORS]


class Vector:
    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields
        self.stored = base64.b64decode(fields["stored_b64"])
        self.digest = Digest("sha256:" + fields["raw_sha256"])
        self.size: int = fields["raw_size"]

    def decode(self, stored: bytes | bytearray, **options: Any) -> memoryview:
        given = {"digest": self.digest, "size": self.size, "what": "x"} | options
        return decode(stored, **given)


@pytest.fixture(params=VECTORS, ids=NAMES)
def vector(request: pytest.FixtureRequest) -> Vector:
    return Vector(request.param)


def join(stored: codec.Stored) -> bytes:
    return b"".join(stored.parts())


def pattern(size: int) -> bytes:
    """Bytes of which every second one packs well, as in a page."""
    source = random.Random(size)
    return bytes(source.randrange(256) if i % 2 else 63 + i % 3 for i in range(size))


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_every_vector_decodes(vector: Vector, threads: int) -> None:
    assert len(vector.stored) == vector.fields["stored_size"]
    for size in (vector.size, None):
        raw = vector.decode(vector.stored, size=size, threads=threads)
        assert raw.readonly and raw.nbytes == vector.size
        assert sha256(raw) == vector.digest and blake3_hex(raw) == vector.fields["raw_blake3"]


def test_every_vector_is_what_the_encoder_writes(vector: Vector) -> None:
    raw, header = vector.decode(vector.stored), parse_header(vector.stored, what="x")
    is_page = vector.fields["name"] == "page raw"
    made = encode(
        raw,
        digest=vector.digest,
        codec=header.codec,
        planes=header.planes,
        frame_size=header.frame_raw_size,
        data_start=8 + int.from_bytes(raw[:8], "little") if is_page else 0,
    )
    assert made.size_bytes == len(join(made))
    if header.codec == RAW or zstandard.ZSTD_VERSION == (1, 5, 7):
        assert join(made) == vector.stored
    assert vector.decode(join(made)) == raw


def test_every_flipped_bit_of_a_vector_is_corrupt(vector: Vector) -> None:
    bad = bytearray(vector.stored)
    for bit in range(len(bad) * 8):
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Corrupt, match=r"^x: "):
            vector.decode(bad, check_digest=False)
        bad[bit // 8] ^= 1 << bit % 8
    assert bad == vector.stored


def test_a_vector_cut_short_is_corrupt(vector: Vector) -> None:
    header = parse_header(vector.stored, what="x")
    sizes = {*range(header.size + 1), *range(header.data_offset - 1, len(vector.stored))}
    for size in sizes - {len(vector.stored)}:
        with pytest.raises(Corrupt, match=r"^x: "):
            vector.decode(vector.stored[:size], check_digest=False)


def test_trailing_bytes_are_corrupt(vector: Vector) -> None:
    for trail in (b"\0", b"x", vector.stored):
        with pytest.raises(Corrupt, match="stored bytes"):
            vector.decode(vector.stored + trail)


def test_another_size_or_digest_is_corrupt(vector: Vector) -> None:
    for size in (vector.size + 1, vector.size - 1, 0 if vector.size else 1):
        with pytest.raises(Corrupt, match=r"^x: "):
            vector.decode(vector.stored, size=size)
    with pytest.raises(Corrupt, match=r"^x: another object"):
        vector.decode(vector.stored, digest=sha256(b"other"), check_digest=False)


def test_the_limit_holds_where_no_size_is_known(vector: Vector) -> None:
    assert vector.decode(vector.stored, size=None, limit=vector.size).nbytes == vector.size
    with pytest.raises(Corrupt, match="at most"):
        vector.decode(vector.stored, size=None, limit=vector.size - 1)
    assert vector.decode(vector.stored, limit=0).nbytes == vector.size


@given(
    st.binary(max_size=300) | st.integers(0, 300).map(pattern),
    st.sampled_from(CODECS),
    st.integers(1, 100) | st.just(codec.FRAME_SIZE),
    st.sampled_from([1, 2]),
)
def test_objects_come_back(raw: bytes, how: tuple[int, int], frame_size: int, threads: int) -> None:
    digest = sha256(raw)
    made = encode(
        raw, digest=digest, codec=how[0], planes=how[1], frame_size=frame_size, threads=threads
    )
    stored = join(made)
    assert made.size_bytes == len(stored)
    assert decode(stored, digest=digest, size=len(raw), what="x", threads=threads) == raw
    header = parse_header(stored, what="x")
    assert header.stored_size == len(stored) and header.digest == digest


@pytest.mark.parametrize(("how", "planes"), CODECS)
@pytest.mark.parametrize("size", range(10))
def test_the_shortest_objects_come_back(how: int, planes: int, size: int) -> None:
    raw = bytes(range(size))
    stored = join(encode(raw, digest=sha256(raw), codec=how, planes=planes))
    assert decode(stored, digest=sha256(raw), size=size, what="x") == raw


@given(st.binary(max_size=100), st.integers(0, 9000), st.integers(1, 50))
def test_codec_0_aligns_the_data(raw: bytes, data_start: int, frame_size: int) -> None:
    made = encode(raw, digest=sha256(raw), codec=RAW, data_start=data_start, frame_size=frame_size)
    assert (len(made.header) + data_start) % 4096 == 0
    assert len(made.header) - parse_header(made.header, what="x").size < 4096


def test_codec_0_copies_nothing() -> None:
    raw = bytearray(pattern(1000))
    made = encode(raw, digest=sha256(raw), codec=RAW, frame_size=300)
    assert [len(frame) for frame in made.frames] == [300, 300, 300, 100]
    raw[350] ^= 1
    assert made.frames[1][50] == raw[350]
    raw[350] ^= 1
    stored = bytearray(join(made))
    view = decode(stored, digest=sha256(raw), size=1000, what="x", check_digest=False)
    assert view.obj is stored


def test_planes_that_do_not_pack_stay_as_they_are() -> None:
    raw = pattern(4000)
    stored = join(encode(raw, digest=sha256(raw), codec=PLANES, planes=2))
    (frame,) = parse_header(stored, what="x").frames
    (packed, coding), as_it_is = frame.planes
    assert coding == 1 and packed < 100 and as_it_is == (2000, 0)


@pytest.mark.parametrize(
    "options",
    [
        {"codec": 3},
        {"codec": 4},
        {"codec": RAW, "planes": 2},
        {"codec": ZSTD, "planes": 2},
        {"codec": PLANES, "planes": 1},
        {"codec": PLANES, "planes": 3},
        {"codec": RAW, "frame_size": 0},
        {"codec": RAW, "frame_size": 2**32},
        {"codec": RAW, "data_start": -1},
    ],
)
def test_parameters_that_the_format_lacks_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        encode(b"abc", digest=sha256(b"abc"), **options)


def test_an_object_under_a_false_digest_is_corrupt() -> None:
    for how, planes in CODECS:
        stored = join(encode(b"abcd" * 99, digest=sha256(b"x"), codec=how, planes=planes))
        with pytest.raises(Corrupt, match=r"^x: bytes do not match"):
            decode(stored, digest=sha256(b"x"), size=396, what="x")


def test_padding_that_is_not_zero_is_corrupt(forge: Forge) -> None:
    stored, digest = forge(padding=bytes(4096 - 141) + b"\1")
    with pytest.raises(Corrupt, match="padding"):
        decode(stored, digest=digest, size=8, what="x")


def test_a_raw_size_beyond_the_limit_is_corrupt_before_any_memory(forge: Forge) -> None:
    frames = {"codec": 1, "data_offset": 140, "raw_size": 2**32 - 1, "frame_raw_size": 2**32 - 1}
    stored, digest = forge(**frames, table=((2**32 - 1, ((8, 1),)),))
    for size in (None, 8):
        with pytest.raises(Corrupt, match="4294967295 bytes"):
            decode(stored, digest=digest, size=size, what="x")


ZSTD_OF_8 = zstandard.ZstdCompressor(level=1).compress(b"abcdefgh")
BOMB = b"\x28\xb5\x2f\xfd\x00\x58" + b"\x02\x00\x10a" * 8000 + b"\x03\x00\x10a"


@pytest.mark.parametrize(
    "body",
    [
        BOMB,
        ZSTD_OF_8 + b"\0",
        ZSTD_OF_8[:-1],
        ZSTD_OF_8 + ZSTD_OF_8,
        zstandard.ZstdCompressor(level=1).compress(b"abcdefg"),
        zstandard.ZstdCompressor(level=1).compress(b"abcdefghi"),
        zstandard.ZstdCompressor(level=1, write_content_size=False).compress(b"abcdefghi"),
        b"",
        b"abcdefgh",
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_frame_that_lies_under_a_good_checksum_is_corrupt(
    forge: Forge, body: bytes, threads: int
) -> None:
    stored, digest = forge(
        raw=b"abcdefgh" * 2,
        codec=1,
        raw_size=16,
        n_frames=2,
        data_offset=96 + 2 * 44,
        table=((8, ((8, 0),)), (8, ((len(body), 1),))),
        body=(b"abcdefgh", body),
    )
    with pytest.raises(Corrupt, match=r"^x: "):
        decode(stored, digest=digest, size=16, what="x", threads=threads, check_digest=False)


def test_frames_of_other_encoders_are_read(forge: Forge) -> None:
    body = zstandard.ZstdCompressor(level=5, write_checksum=True).compress(b"abcdefgh")
    stored, digest = forge(codec=1, data_offset=140, table=((8, ((len(body), 1),)),), body=(body,))
    assert decode(stored, digest=digest, size=8, what="x") == b"abcdefgh"


@pytest.mark.parametrize(("how", "planes"), CODECS)
def test_large_objects_come_back_through_threads(how: int, planes: int) -> None:
    raw = pattern(40_001) * 5
    made = encode(raw, digest=sha256(raw), codec=how, planes=planes, frame_size=7001, threads=4)
    one = encode(raw, digest=sha256(raw), codec=how, planes=planes, frame_size=7001)
    assert join(made) == join(one)
    stored = join(made)
    assert decode(stored, digest=sha256(raw), size=len(raw), what="x", threads=4) == raw
    bad = bytearray(stored)
    bad[-1] ^= 1
    with pytest.raises(Corrupt, match="frame 28"):
        decode(bad, digest=sha256(raw), size=len(raw), what="x", threads=4)


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt, match=r"^x: "):
        decode(data, digest=sha256(data), size=None, what="x")


def test_without_the_frames_checksums_the_digest_covers_every_raw_byte() -> None:
    raw = pattern(3000)
    stored = bytearray(join(codec.encode(raw, digest=sha256(raw), codec=0, frame_size=1000)))
    for at in (len(stored) - 3000, len(stored) - 1):
        stored[at] ^= 1
        with pytest.raises(Corrupt, match="digest"):
            codec.decode(stored, digest=sha256(raw), size=3000, what="x", check_frames=False)
        with pytest.raises(Corrupt, match="checksum"):
            codec.decode(
                stored,
                digest=sha256(raw),
                size=3000,
                what="x",
                check_frames=False,
                check_digest=False,
            )
        stored[at] ^= 1


def test_a_known_blake3_is_taken_for_one_frame_and_not_for_several() -> None:
    raw = pattern(3000)
    for frame_size in (3000, 1000):
        made = codec.encode(
            raw, digest=sha256(raw), codec=0, frame_size=frame_size, blake3=blake3_bytes(raw)
        )
        assert codec.decode(join(made), digest=sha256(raw), size=3000, what="x") == raw
    lie = codec.encode(raw, digest=sha256(raw), codec=0, blake3=bytes(32))
    with pytest.raises(Corrupt, match="checksum"):
        codec.decode(join(lie), digest=sha256(raw), size=3000, what="x")
