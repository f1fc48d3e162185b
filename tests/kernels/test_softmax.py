from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kvg_kernels.pointwise import pointwise
from kvg_kernels.softmax import softmax, softmax_reference
from kvg_kernels.tree import tree_sum

Made = Callable[..., torch.Tensor]
DTYPES = [torch.bfloat16, torch.float16, torch.float32]
WIDTHS = [1, 7, 128, 256, 257, 600]
CLOSE = {torch.bfloat16: 1e-2, torch.float16: 1e-3, torch.float32: 1e-6}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", WIDTHS)
def test_is_close_to_float64(made: Made, dtype: torch.dtype, n: int, nan_filled: None) -> None:
    x = made(2, 3, n, dtype=dtype) * 4
    found = softmax(x)
    assert found.dtype is dtype and found.shape == x.shape
    wide = softmax_reference(x.double())
    torch.testing.assert_close(found.double(), wide, rtol=CLOSE[dtype], atol=CLOSE[dtype])


@pytest.mark.parametrize("n", [1, 2, 4, 64, 256, 512])
def test_equals_its_definition_bit_for_bit_where_sums_are_exact(n: int) -> None:
    """Equal scores, beside ones that are too small to count: powers of two all through."""
    x = torch.full((3, n), 0.75)
    assert torch.equal(softmax(x), softmax_reference(x))
    beside = torch.cat([x, torch.full((3, n), float("-inf"))], 1)
    assert torch.equal(softmax(beside), softmax_reference(beside))


@pytest.mark.parametrize("n", WIDTHS)
def test_is_summed_in_the_one_tree(made: Made, n: int, nan_filled: None) -> None:
    x = made(50, n) * 4
    weights = pointwise(torch.exp, x - x.amax(-1, keepdim=True))
    assert torch.equal(softmax(x), weights / tree_sum(weights))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_keeps_its_bits_in_any_company_place_and_thread(
    made: Made, dtype: torch.dtype, n_threads: int
) -> None:
    x = made(70, 300, dtype=dtype)
    whole = softmax(x)
    assert torch.equal(torch.cat([softmax(row) for row in x.split(1)]), whole)
    assert torch.equal(softmax(x.flip(0)).flip(0), whole)
    assert torch.equal(softmax(made(70, 300, dtype=dtype, skip=1)), whole)
    assert torch.equal(softmax(x.T.contiguous().T), whole)


@pytest.mark.parametrize("more", [1, 100, 300])
def test_what_is_masked_changes_no_bit(made: Made, more: int) -> None:
    x = made(5, 300)
    longer = torch.cat([x, torch.full((5, more), float("-inf"))], 1)
    found = softmax(longer)
    assert torch.equal(found[:, :300], softmax(x))
    assert not found[:, 300:].any()


def test_is_computed_in_fp32_and_rounded_once(made: Made) -> None:
    x = made(5, 300, dtype=torch.bfloat16)
    assert torch.equal(softmax(x, dtype=torch.float32), softmax(x.float()))
    assert torch.equal(softmax(x), softmax(x.float()).bfloat16())
