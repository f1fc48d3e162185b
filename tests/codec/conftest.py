from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import pytest

from kvg.digest import Digest, blake3_bytes, raw_of, sha256


def pack(
    *,
    raw: bytes = b"abcdefgh",
    magic: bytes = b"KVZ1",
    codec: int = 0,
    planes: int = 1,
    zero: int = 0,
    raw_size: int = 8,
    frame_raw_size: int = 8,
    n_frames: int = 1,
    data_offset: int = 4096,
    zero_2: int = 0,
    table: Sequence[tuple[int, Sequence[tuple[int, int]]]] = ((8, ((8, 0),)),),
    body: Sequence[bytes] = (b"abcdefgh",),
    padding: bytes | None = None,
) -> tuple[bytes, Digest]:
    """A stored object packed field by field, each free to lie, under checksums that fit."""
    digest = sha256(raw)
    head = struct.pack("<4sBBHQ", magic, codec, planes, zero, raw_size)
    head += struct.pack("<IIII", frame_raw_size, n_frames, data_offset, zero_2) + raw_of(digest)
    for (frame_size, codings), stored in zip(table, body, strict=True):
        head += struct.pack("<I", frame_size)
        head += b"".join(struct.pack("<II", *coding) for coding in codings)
        head += blake3_bytes(stored)
    head += blake3_bytes(head)
    if padding is None:
        padding = bytes(max(0, data_offset - len(head)))
    return head + padding + b"".join(body), digest


@pytest.fixture
def forge() -> Callable[..., tuple[bytes, Digest]]:
    """What an attacker would write: see ``pack``."""
    return pack
