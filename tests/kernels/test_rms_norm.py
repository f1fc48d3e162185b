from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kvg_kernels.rms_norm import rms_norm, rms_norm_reference
from kvg_kernels.tree import BLOCK, tree_sum

Made = Callable[..., torch.Tensor]
DTYPES = [torch.bfloat16, torch.float16, torch.float32]
WIDTHS = [1, 7, 64, BLOCK, BLOCK + 1, 576]
EPS = 1e-6
CLOSE = {torch.bfloat16: 2e-2, torch.float16: 2e-3, torch.float32: 1e-5}


def tree(row: list[torch.Tensor]) -> torch.Tensor:
    """The sum of one row of numbers, added pair by pair as ``tree_sum`` says."""
    total = None
    for start in range(0, len(row), BLOCK):
        block = row[start : start + BLOCK]
        block += [torch.zeros(())] * (BLOCK - len(block))
        while len(block) > 1:
            half = len(block) // 2
            block = [a + b for a, b in zip(block[:half], block[half:], strict=True)]
        total = block[0] if total is None else total + block[0]
    assert total is not None
    return total


@pytest.mark.parametrize("n", WIDTHS)
def test_a_sum_is_its_tree_bit_for_bit(made: Made, n: int, nan_filled: None) -> None:
    x = made(3, n)
    expected = torch.stack([tree(list(row)) for row in x])
    assert torch.equal(tree_sum(x), expected.unsqueeze(1))
    longer = torch.cat([x, torch.zeros(3, 300)], 1)
    assert torch.equal(tree_sum(longer), tree_sum(x))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", WIDTHS)
def test_is_close_to_float64(made: Made, dtype: torch.dtype, n: int, nan_filled: None) -> None:
    x, weight = made(2, 3, n, dtype=dtype), made(n, dtype=dtype)
    for factor in (None, weight):
        wide = rms_norm_reference(x.double(), None if factor is None else factor.double(), EPS)
        found = rms_norm(x, factor, EPS)
        assert found.dtype is dtype and found.shape == x.shape
        close = CLOSE[dtype]
        torch.testing.assert_close(found.double(), wide, rtol=close, atol=close)


@pytest.mark.parametrize("dtype", DTYPES)
def test_equals_its_definition_bit_for_bit_where_sums_are_exact(
    made: Made, dtype: torch.dtype
) -> None:
    """Powers of two whose squares sum without rounding, and a sum that is one as well."""
    x = torch.tensor([[1.0, -1.0, 1.0, 1.0], [2.0, -2.0, 2.0, 2.0], [0.5] * 4]).to(dtype)
    weight = torch.tensor([1.0, 2.0, -0.5, 4.0]).to(dtype)
    assert torch.equal(rms_norm(x, weight, 0.0), rms_norm_reference(x, weight, 0.0))
    assert torch.equal(rms_norm(x, None, 0.0), x.sign())


def test_is_computed_in_fp32_and_rounded_once(made: Made) -> None:
    x, weight = made(5, 300, dtype=torch.bfloat16), made(300, dtype=torch.bfloat16)
    wide = rms_norm(x.float(), weight.float(), EPS)
    assert torch.equal(rms_norm(x, weight, EPS), wide.bfloat16())


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_keeps_its_bits_in_any_company_place_and_thread(
    made: Made, dtype: torch.dtype, n_threads: int
) -> None:
    x, weight = made(70, 300, dtype=dtype), made(300, dtype=dtype)
    whole = rms_norm(x, weight, EPS)
    assert torch.equal(torch.cat([rms_norm(row, weight, EPS) for row in x.split(1)]), whole)
    assert torch.equal(rms_norm(x.flip(0), weight, EPS).flip(0), whole)
    elsewhere = made(70, 300, dtype=dtype, skip=1)
    assert torch.equal(rms_norm(elsewhere, weight, EPS), whole)
    assert torch.equal(rms_norm(x.T.contiguous().T, weight, EPS), whole)
