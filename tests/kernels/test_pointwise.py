from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch.nn import functional

from kvg_kernels.pointwise import pointwise
from kvg_kernels.pointwise.cpu import (
    GRAIN_ELEMENTS,
    SHARED_ELEMENTS,
    VECTOR_ELEMENTS,
    padded_length,
)

Made = Callable[..., torch.Tensor]
OPS = {
    "exp": torch.exp,
    "cos": torch.cos,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "silu": functional.silu,
    "gelu": functional.gelu,
}


@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_an_element_keeps_its_bits_wherever_it_lies(
    made: Made, op: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype
) -> None:
    x = made(3000, dtype=dtype) * 4
    whole = pointwise(op, x)
    for n in (1, 2, 7, 127, 128, 129, 1000):
        assert torch.equal(pointwise(op, x[:n]), whole[:n])
        assert torch.equal(pointwise(op, x[-n:]), whole[-n:])
    for skip in (1, 3, 8):
        assert torch.equal(pointwise(op, x[skip:]), whole[skip:])
    assert torch.equal(pointwise(op, x.view(50, 60).T), whole.view(50, 60).T)


@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_threads_change_no_bit(made: Made, op: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = made(2 * GRAIN_ELEMENTS + 777)
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(pointwise(op, x))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


SHARED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    **OPS,
    "gelu, tanh": partial(functional.gelu, approximate="tanh"),
    **{
        name: getattr(functional, name)
        for name in ("softplus", "mish", "elu", "selu", "celu", "hardswish", "logsigmoid")
    },
    **{
        name: getattr(torch, name)
        for name in ("sin", "tan", "exp2", "expm1", "log1p", "erf", "rsqrt", "asinh", "atan")
    },
}
MADE = 140_001


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("op", SHARED.values(), ids=SHARED)
def test_no_number_of_threads_changes_a_bit_of_any_length(
    made: Made, op: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype
) -> None:
    """Kernels differ in how many elements they share among threads: that of ``gelu`` has a rule of
    its own. Each length is compared with pieces that no rule shares."""
    x = made(MADE, dtype=dtype).mul_(3)
    if op in (torch.rsqrt, torch.log1p):
        x = x.abs()
    alone = torch.cat([pointwise(op, piece) for piece in x.split(8192)])
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3, 4, 5, 7, 8, 16, 48):
            torch.set_num_threads(threads)
            for n in (8_193, 16_500, 18_624, 24_576, 25_088, 32_769, 40_001, 66_001, MADE):
                same = torch.equal(bits(pointwise(op, x[:n])), bits(alone[:n]))
                assert same, (threads, n)
    finally:
        torch.set_num_threads(before)


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.view(torch.int32 if x.dtype == torch.float32 else torch.int16)


@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_is_close_to_float64(made: Made, op: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = made(1001)
    torch.testing.assert_close(pointwise(op, x).double(), op(x.double()), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("threads", [1, 2, 3, 7, 16, 63, 64])
def test_every_share_is_whole_vectors(threads: int) -> None:
    for n in (
        1,
        127,
        128,
        129,
        GRAIN_ELEMENTS - 1,
        GRAIN_ELEMENTS + 1,
        5 * GRAIN_ELEMENTS + 3,
        10**6,
    ):
        length = padded_length(n, threads)
        shares = min(threads, -(-length // GRAIN_ELEMENTS)) or 1
        assert length >= n
        assert length % (VECTOR_ELEMENTS * shares) == 0
        assert length <= SHARED_ELEMENTS or length % (VECTOR_ELEMENTS * threads) == 0
        assert length < 2 * n + 2 * VECTOR_ELEMENTS
