from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvg import codec
from kvg.codec import join_planes, split_planes, stored
from kvg.digest import sha256, shake256
from kvg.model import planes as quick


@given(st.binary(max_size=100), st.sampled_from([1, 2, 4]))
def test_planes_come_back(raw: bytes, n: int) -> None:
    for spelling in (raw, bytearray(raw), memoryview(raw)):
        planes = split_planes(spelling, n)
        assert planes == tuple(raw[p::n] for p in range(n))
        assert join_planes(*planes) == raw


@pytest.mark.parametrize("planes", [(b"a", b"bc"), (b"abc", b"d"), (b"", b"a")])
def test_planes_that_do_not_belong_together_are_refused(planes: tuple[bytes, ...]) -> None:
    with pytest.raises(ValueError):
        join_planes(*planes)


@given(st.binary(max_size=100), st.sampled_from([2, 4]), st.sampled_from([1, 3, 1 << 16]))
def test_numpy_takes_apart_as_slices_do(raw: bytes, n: int, at_once: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quick, "_ELEMENTS", at_once)
        for spelling in (raw, memoryview(raw)):
            assert tuple(map(bytes, quick.split_planes(spelling, n))) == split_planes(raw, n)


@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("size", [0, 1, 5, 9_999, 70_001])
@pytest.mark.parametrize("at_once", [8, 4096])
def test_objects_are_the_same_whoever_takes_planes_apart_and_joins_them(
    monkeypatch: pytest.MonkeyPatch, n: int, size: int, at_once: int
) -> None:
    monkeypatch.setattr(stored, "JOIN_BYTES", at_once)
    raw = bytes(byte & 3 if at % 2 else byte for at, byte in enumerate(shake256(b"it", size)))
    forms = [
        b"".join(
            codec.encode(
                raw, digest=sha256(raw), codec=2, planes=n, frame_size=30_001, split=split
            ).parts()
        )
        for split in (split_planes, quick.split_planes)
    ]
    assert forms[0] == forms[1]
    for join in (None, quick.join_planes):
        found = codec.decode(forms[0], digest=sha256(raw), size=size, what="it", join=join)
        assert found == raw
