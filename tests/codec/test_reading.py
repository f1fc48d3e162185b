"""Objects read piece by piece: the bytes of ``decode``, and as many as a header may stand for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvg import codec
from kvg.codec import reading
from kvg.digest import sha256, shake256
from kvg.errors import Corrupt, KvgError
from kvg.model.planes import join_planes

KINDS = ((codec.RAW, 1), (codec.ZSTD, 1), (codec.PLANES, 2), (codec.PLANES, 4))


def text(size: int) -> bytes:
    """Bytes of which every second packs well and the others do not."""
    noise = shake256(b"reading", size)
    return bytes(byte if at % 2 else byte & 3 for at, byte in enumerate(noise))


def stored_of(raw: bytes, kind: int, planes: int, frame_size: int = 10_000) -> bytes:
    form = codec.encode(raw, digest=sha256(raw), codec=kind, planes=planes, frame_size=frame_size)
    return b"".join(map(bytes, form.parts()))


def source(stored: bytes, at_most: int = 1 << 30) -> Callable[[memoryview, int], int]:
    def read_into(buffer: memoryview, position: int) -> int:
        data = stored[position : position + min(len(buffer), at_most)]
        buffer[: len(data)] = data
        return len(data)

    return read_into


def read(stored: bytes, raw: bytes, at_most: int = 1 << 30, join: reading.Join | None = None):  # type: ignore[no-untyped-def]
    opened = codec.open_pieces(
        source(stored, at_most), len(stored), digest=sha256(raw), size=len(raw), what="it"
    )
    return b"".join(map(bytes, opened.pieces(join)))


@pytest.mark.parametrize("join", [None, join_planes])
@pytest.mark.parametrize("piece", [1000, 4096, 256 << 10])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 5, 9_999, 10_001, 43_210])
@pytest.mark.parametrize(("kind", "planes"), KINDS)
def test_all_of_it(
    monkeypatch: pytest.MonkeyPatch,
    kind: int,
    planes: int,
    size: int,
    piece: int,
    join: reading.Join | None,
) -> None:
    monkeypatch.setattr(reading, "PIECE_BYTES", piece)
    raw = text(size)
    stored = stored_of(raw, kind, planes)
    assert read(stored, raw, join=join) == raw
    assert read(stored, raw, at_most=7, join=join) == raw


@pytest.mark.parametrize(("kind", "planes"), KINDS)
def test_a_header_longer_than_what_is_read_first(kind: int, planes: int) -> None:
    raw = text(40_000)
    stored = stored_of(raw, kind, planes, frame_size=100)
    assert len(stored) > reading.FIRST_BYTES
    assert read(stored, raw) == raw


@pytest.mark.parametrize(("kind", "planes"), KINDS)
def test_no_flipped_bit_gives_other_bytes_unseen_in_size(kind: int, planes: int) -> None:
    """What is damaged is refused, or gives as many bytes: who takes them compares their digest."""
    raw = text(3000)
    stored = stored_of(raw, kind, planes, frame_size=1024)
    for place in range(0, len(stored), 3):
        bad = bytearray(stored)
        bad[place] ^= 1 << place % 8
        try:
            found = read(bytes(bad), raw)
        except Corrupt:
            continue
        assert len(found) == len(raw)


@pytest.mark.parametrize(("kind", "planes"), KINDS)
def test_what_is_cut_short_or_too_long_is_refused(kind: int, planes: int) -> None:
    raw = text(30_000)
    stored = stored_of(raw, kind, planes)
    for wrong in (stored[:-1], stored + b"\0", stored[:100], stored[:40], b""):
        with pytest.raises(KvgError):
            read(wrong, raw)
    with pytest.raises(Corrupt, match="shorter"):  # while it is read
        opened = codec.open_pieces(
            source(stored[:-1]), len(stored), digest=sha256(raw), size=len(raw), what="it"
        )
        b"".join(map(bytes, opened.pieces()))


def test_another_size_or_name_is_refused_before_anything_is_read() -> None:
    raw = text(30_000)
    stored = stored_of(raw, codec.PLANES, 2)
    for digest, size in ((sha256(raw), 29_999), (sha256(b"else"), 30_000)):
        with pytest.raises(Corrupt):
            codec.open_pieces(source(stored), len(stored), digest=digest, size=size, what="it")
