"""``check_raw`` finds what ``decode`` finds, and tells the same, piece by piece."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvg import codec
from kvg.codec import checking
from kvg.digest import blake3_hex, sha256, shake256
from kvg.errors import Corrupt, KvgError


def reader(stored: bytes) -> Callable[[memoryview, int], int]:
    def read_into(buffer: memoryview, position: int) -> int:
        data = stored[position : position + len(buffer)]
        buffer[: len(data)] = data
        return len(data)

    return read_into


def stored_of(raw: bytes, kind: int = codec.RAW, frame_size: int = 4096) -> bytes:
    planes = 2 if kind == codec.PLANES else 1
    form = codec.encode(
        raw,
        digest=sha256(raw),
        codec=kind,
        planes=planes,
        data_start=24 if kind == codec.RAW else 0,
        frame_size=frame_size,
    )
    return b"".join(map(bytes, form.parts()))


def check(
    stored: bytes, raw: bytes, head_bytes: int = 24, *, with_blake3: bool = True
) -> codec.Checked | None:
    return codec.check_raw(
        reader(stored),
        len(stored),
        digest=sha256(raw),
        size=len(raw),
        what="it",
        head_bytes=head_bytes,
        with_blake3=with_blake3,
    )


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 300_000])
@pytest.mark.parametrize("frame_size", [4096, 1 << 23])
def test_a_good_object(size: int, frame_size: int) -> None:
    raw = shake256(b"object", size)
    found = check(stored_of(raw, frame_size=frame_size), raw)
    assert found == codec.Checked(blake3_hex(raw), raw[:24])


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 300_000])
@pytest.mark.parametrize("frame_size", [4096, 1 << 23])
def test_by_sha256_alone(size: int, frame_size: int) -> None:
    raw = shake256(b"object", size)
    stored = stored_of(raw, frame_size=frame_size)
    n_frames = -(-size // frame_size)
    told = blake3_hex(raw) if n_frames == 1 else None
    assert check(stored, raw, with_blake3=False) == codec.Checked(told, raw[:24])
    if size:
        bad = bytearray(stored)
        bad[-1] ^= 1
        with pytest.raises(Corrupt, match="digest"):
            check(bytes(bad), raw, with_blake3=False)


@pytest.mark.parametrize("kind", [codec.ZSTD, codec.PLANES])
def test_a_compressed_object_is_left_to_decode(kind: int) -> None:
    raw = bytes(9000)
    assert check(stored_of(raw, kind), raw) is None


def test_a_header_or_padding_longer_than_what_is_read_is_left_to_decode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = shake256(b"object", 50_000)
    stored = stored_of(raw, frame_size=64)
    for most in (30_000, 5000):
        monkeypatch.setattr(checking, "HEAD_BYTES", most)
        assert check(stored, raw) is None


def test_every_flipped_byte_and_every_cut_is_told_as_decode_tells_it() -> None:
    raw = shake256(b"object", 2500)
    stored = stored_of(raw, frame_size=1024)
    damaged = [stored[:at] for at in range(0, len(stored), 7)] + [stored + b"\0"]
    for at in range(len(stored)):
        damaged.append(stored[:at] + bytes([stored[at] ^ 1]) + stored[at + 1 :])
    for data in damaged:
        with pytest.raises(KvgError) as expected:
            codec.decode(data, digest=sha256(raw), size=len(raw), what="it")
        with pytest.raises(type(expected.value)) as told:
            assert check(data, raw) is None  # it may leave it to decode, which raised
            raise expected.value
        assert told.value.message == expected.value.message


def test_a_file_that_becomes_shorter() -> None:
    raw = shake256(b"object", 9000)
    stored = stored_of(raw)
    with pytest.raises(Corrupt, match="became shorter"):
        codec.check_raw(
            reader(stored[:6000]),
            len(stored),
            digest=sha256(raw),
            size=len(raw),
            what="it",
            head_bytes=0,
        )
