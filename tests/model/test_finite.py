"""A value that is not finite is found wherever it stands, in every dtype."""

from __future__ import annotations

import pytest
import torch

from kvg.errors import Corrupt
from kvg.model.dtypes import TORCH_DTYPES
from kvg.model.state import SlotState, capture_page, is_finite
from kvg.objects.manifest import LayerSpec, group_layers

DTYPES = ["BF16", "F16", "F32"]
VALUES = [float("nan"), float("inf"), float("-inf"), -float("nan")]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("size", [1, 3, 16, 33, 100])
def test_found_at_every_place(dtype: str, value: float, size: int) -> None:
    for place in range(size):
        values = torch.full((size,), 1.5, dtype=TORCH_DTYPES[dtype])
        assert is_finite(values)
        values[place] = value
        assert not is_finite(values)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("place", [0, 7, 150_001, 3_000_000])
def test_found_in_what_several_threads_look_at(dtype: str, value: float, place: int) -> None:
    values = torch.randn(3_000_001).to(TORCH_DTYPES[dtype])
    values[place] = value
    assert not is_finite(values)


def test_no_values_are_finite() -> None:
    assert is_finite(torch.empty(0))


@pytest.mark.parametrize("dtype", ["BF16", "F16"])
def test_every_pattern_is_judged_as_the_format_says(dtype: str) -> None:
    """Not finite is what has every bit of the exponent set."""
    exponent = 0x7C00 if dtype == "F16" else 0x7F80
    bits = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16)
    for pattern, value in enumerate(bits.view(TORCH_DTYPES[dtype]).split(1)):
        assert is_finite(value) == (pattern & exponent != exponent)


@pytest.mark.parametrize("part", ["keys", "values"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_page_is_not_taken_and_the_layer_is_named(part: str, dtype: str) -> None:
    specs = [LayerSpec(index, "attention", 2, 8, 8, dtype, None) for index in range(3)]
    state = SlotState(specs, torch.device("cpu"), 8)
    (group,) = group_layers(specs)
    getattr(state, part)[1][1, 5, 3] = float("nan")
    capture_page(state, group, 0, 5, what="it")
    with pytest.raises(Corrupt, match=r"^it: layer 1 holds a value that is not finite$"):
        capture_page(state, group, 4, 8, what="it")
