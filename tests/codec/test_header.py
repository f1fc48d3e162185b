from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvg.codec import PREFIX_SIZE, Frame, Header, header_size, parse_header, parse_header_size
from kvg.codec.header import MAX_FRAMES, encode_header
from kvg.digest import Digest, sha256
from kvg.errors import Corrupt, Incompatible

Forge = Callable[..., tuple[bytes, Digest]]
DIGEST = sha256(b"")
TWO = {"n_frames": 2, "table": ((8, ((8, 0),)),) * 2, "body": (b"abcdefgh",) * 2}


@st.composite
def headers(draw: st.DrawFn) -> Header:
    codec, planes = draw(st.sampled_from([(0, 1), (1, 1), (2, 2), (2, 4)]))
    raw_size, step = draw(st.integers(0, 200)), draw(st.integers(20, 100))
    frames = []
    for start in range(0, raw_size, step):
        size = min(step, raw_size - start)
        codings = tuple(
            (draw(st.integers(0, 99)), 1)
            if codec and draw(st.booleans())
            else (len(range(plane, size, planes)), 0)
            for plane in range(planes)
        )
        frames.append(Frame(size, codings, draw(st.binary(min_size=32, max_size=32))))
    offset = header_size(len(frames), planes)
    offset += draw(st.integers(0, 4095)) if codec == 0 else 0
    return Header(codec, planes, raw_size, step, tuple(frames), offset, DIGEST)


@given(headers())
def test_a_header_comes_back(header: Header) -> None:
    data = encode_header(header)
    assert len(data) == header.data_offset
    assert parse_header_size(data[:PREFIX_SIZE], what="x") == header.size
    assert parse_header(data[: header.size], what="x") == header
    assert parse_header(memoryview(data + b"more"), what="x") == header


@given(headers(), st.data())
def test_a_changed_header_is_corrupt(header: Header, data: st.DataObject) -> None:
    bad = bytearray(encode_header(header)[: header.size])
    bit = data.draw(st.integers(0, len(bad) * 8 - 1))
    bad[bit // 8] ^= 1 << bit % 8
    with pytest.raises(Corrupt, match=r"^x: "):
        parse_header(bad, what="x")


@given(headers(), st.data())
def test_a_header_cut_short_is_corrupt(header: Header, data: st.DataObject) -> None:
    size = data.draw(st.integers(0, header.size - 1))
    with pytest.raises(Corrupt, match=r"^x: "):
        parse_header(encode_header(header)[:size], what="x")


def test_what_the_forger_packs_is_well_formed(forge: Forge) -> None:
    header = parse_header(forge()[0], what="x")
    assert (header.raw_size, header.data_offset, header.stored_size) == (8, 4096, 4104)


LIES: dict[str, dict[str, Any]] = {
    "another magic": {"magic": b"KVZ2"},
    "an unknown codec": {"codec": 4},
    "codec 0 in planes": {"planes": 2, "table": ((8, ((4, 0), (4, 0))),)},
    "codec 2 in one plane": {"codec": 2, "data_offset": 140},
    "three planes": {"codec": 2, "planes": 3, "table": ((8, ((3, 0), (3, 0), (2, 0))),)},
    "no planes": {"planes": 0, "table": ((8, ()),)},
    "reserved bits": {"zero": 1},
    "more reserved bits": {"zero_2": 1 << 31},
    "more raw bytes": {"raw_size": 9},
    "fewer raw bytes": {"raw_size": 7},
    "no raw bytes": {"raw_size": 0},
    "exabytes": {"raw_size": 2**64 - 1},
    "frames of nothing": {"frame_raw_size": 0},
    "smaller frames": {"frame_raw_size": 4},
    "a frame too many": TWO,
    "a frame too large": TWO | {"raw_size": 12},
    "an early short frame": TWO | {"raw_size": 14, "table": ((6, ((6, 0),)), (8, ((8, 0),)))},
    "a frame too few": {"n_frames": 0, "table": (), "body": ()},
    "an empty frame": {"raw_size": 0, "table": ((0, ((0, 0),)),), "body": (b"",)},
    "an unknown coding": {"codec": 1, "data_offset": 140, "table": ((8, ((8, 2),)),)},
    "zstd in codec 0": {"table": ((8, ((8, 1),)),)},
    "another size as it is": {"table": ((8, ((7, 0),)),)},
    "frames inside the header": {"data_offset": 139},
    "a page of padding": {"data_offset": 140 + 4096},
    "padding in codec 1": {"codec": 1},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_header_that_lies_is_corrupt(forge: Forge, lie: str) -> None:
    with pytest.raises(Corrupt, match=r"^x: "):
        parse_header(forge(**LIES[lie])[0], what="x")


def test_more_frames_than_there_are_bytes_is_corrupt(forge: Forge) -> None:
    for n_frames in (2, MAX_FRAMES, MAX_FRAMES + 1, 2**32 - 1):
        stored = forge(n_frames=n_frames, raw_size=8 * n_frames)[0]
        with pytest.raises(Corrupt, match=r"^x: "):
            parse_header(stored, what="x")


def test_the_reserved_codec_is_incompatible(forge: Forge) -> None:
    with pytest.raises(Incompatible, match=r"^x: encrypted"):
        parse_header(forge(codec=3)[0], what="x")


def test_headers_that_no_object_has_are_not_made() -> None:
    empty = Header(0, 1, 0, 8, (), 96, DIGEST)
    assert encode_header(empty)[:4] == b"KVZ1"
    with pytest.raises(ValueError):
        Header(0, 1, 1, 8, (), 96, DIGEST)
    with pytest.raises(ValueError):
        encode_header(Header(0, 1, 0, 2**32, (), 96, DIGEST))
    frame = Frame(1, ((1, 0),), bytes(32))
    many = tuple([frame] * (MAX_FRAMES + 1))
    offset = header_size(len(many), 1)
    with pytest.raises(ValueError, match="frames"):
        encode_header(Header(0, 1, len(many), 1, many, offset, DIGEST))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_corrupt(data: bytes) -> None:
    for stored in (data, b"KVZ1" + data, b"KVZ1\x00\x01" + data):
        with pytest.raises(Corrupt, match=r"^x: "):
            parse_header(stored, what="x")
