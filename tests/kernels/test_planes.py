from __future__ import annotations

import pytest
import torch

from kvg_kernels.planes import (
    join_planes,
    join_planes_reference,
    split_planes,
    split_planes_reference,
)

LENGTHS = [0, 1, 2, 7, 8, 9, 63, 64, 65, 1001]


def raw_bytes(n: int, skip: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(n)
    data = torch.randint(256, (n + skip,), dtype=torch.uint8, generator=generator)
    return data[skip:]


@pytest.mark.parametrize("planes", [1, 2, 4, 8])
@pytest.mark.parametrize("n", LENGTHS)
def test_equals_its_definition_and_comes_back(n: int, planes: int) -> None:
    for raw in (raw_bytes(n), raw_bytes(n, skip=3), raw_bytes(2 * n)[::2]):
        found = split_planes(raw, planes)
        expected = split_planes_reference(raw, planes)
        assert len(found) == len(expected) == planes
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        assert torch.equal(join_planes(*found), raw)
        assert torch.equal(join_planes_reference(*found), raw)


def test_every_byte_of_the_result_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over memory that is full of another byte."""
    stock = torch.Tensor.new_empty
    monkeypatch.setattr(
        torch.Tensor, "new_empty", lambda tensor, *size: stock(tensor, *size).fill_(0xAA)
    )
    for n in LENGTHS:
        assert not join_planes(*split_planes(torch.zeros(n, dtype=torch.uint8), 4)).any()


def test_planes_are_copies() -> None:
    raw = raw_bytes(64)
    before = raw.clone()
    for planes in (1, 2):
        split_planes(raw, planes)[0].zero_()
        assert torch.equal(raw, before)


def test_what_is_not_flat_bytes_or_does_not_belong_is_refused() -> None:
    raw = raw_bytes(9)
    for wrong in (raw.view(3, 3), raw.float()):
        with pytest.raises(ValueError, match="flat uint8"):
            split_planes(wrong, 2)
    for count in (0, 3, 16):
        with pytest.raises(ValueError, match="planes"):
            split_planes(raw, count)
    first, second = split_planes(raw, 2)
    with pytest.raises(ValueError, match="do not belong"):
        join_planes(second, first)
    with pytest.raises(ValueError, match="no planes"):
        join_planes()
