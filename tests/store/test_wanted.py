from __future__ import annotations

from pathlib import Path

import pytest

from kvg.digest import hex_of, shake256
from kvg.errors import Corrupt
from kvg.store.wanted import Mark, keep_wanted, mark_of, read_wanted, wanted_faults
from tests import artifacts as a

STRETCHES = tuple(shake256(f"stretch {i}".encode(), 48) for i in range(3))


@pytest.mark.parametrize("place", [0, 1, 500, 952])
def test_a_mark_knows_its_stretch_and_no_other(place: int) -> None:
    data = bytearray(shake256(b"much else", 1000))
    mark = mark_of(STRETCHES[0])
    assert not mark.is_in(bytes(data))
    data[place : place + 48] = STRETCHES[0]
    assert mark.is_in(bytes(data))
    data[place + 47] ^= 1
    assert not mark.is_in(bytes(data)) and not mark.is_in(STRETCHES[0][:-1])


def test_a_mark_is_anchored_where_its_bytes_are_rare() -> None:
    assert mark_of(bytes(40) + b"abcd" + bytes(4)).anchor in (b"ab", b"bc", b"cd")


def test_marks_are_kept_until_there_are_none(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    digest = a.deposit(store, key).digest
    marks = tuple(map(mark_of, STRETCHES))
    assert read_wanted(store, digest) == ()
    keep_wanted(store, digest, marks)
    assert read_wanted(store, digest) == marks and all(isinstance(m, Mark) for m in marks)
    path = store.root / "forgotten" / f"{hex_of(digest)}.wanted"
    whole = path.read_bytes()
    assert not any(stretch[:3].hex().encode() in whole for stretch in STRETCHES)
    for damaged in (b"", whole[:-1], *(_flipped(whole, i) for i in range(0, len(whole), 7))):
        path.write_bytes(damaged)
        with pytest.raises(Corrupt, match="wanted"):
            read_wanted(store, digest)
        assert len(list(wanted_faults(store))) == 1
    path.write_bytes(whole)
    assert list(wanted_faults(store)) == []
    keep_wanted(store, digest, ())
    assert read_wanted(store, digest) == () and not path.exists()


def _flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
