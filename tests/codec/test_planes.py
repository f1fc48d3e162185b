from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvg.codec import join_planes, split_planes


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
