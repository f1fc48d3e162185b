"""What passes the census gives a piece of a tensor the bits that it has in the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
import torch

from kvg.errors import Incompatible
from kvg.model.binding import BoundCache
from kvg.model.invariant import Execution, TileMenu, installed
from tests import models

Op = Callable[..., torch.Tensor]
PIECES = ((0, 1), (1, 8), (3, 20), (5, 7), (100, 355), (17, 1030), (8, 24), (2, 1000))
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
LONG_ROW = 1 << 16

ONE: dict[str, Op] = {
    **{
        name: lambda x, name=name: getattr(x, name)()
        for name in [
            "neg",
            "abs",
            "rsqrt",
            "sqrt",
            "square",
            "reciprocal",
            "floor",
            "round",
            "relu",
            "float",
            "bfloat16",
            "half",
        ]
    },
    **{
        f"{name} number": lambda x, name=name: getattr(x, name)(1.3)
        for name in [
            "add",
            "sub",
            "mul",
            "div",
            "true_divide",
            "__floordiv__",
            "__rtruediv__",
            "__rsub__",
            "clamp_min",
        ]
    },
    "rsqrt of torch": torch.rsqrt,
    "clamp": lambda x: x.clamp(-1, 1),
    "round to places": lambda x: x.round(decimals=2),
    "div, floor": lambda x: x.div(1.3, rounding_mode="floor"),
    "square by power": lambda x: x.pow(2),
    "cube": lambda x: x.pow(3),
    "sigmoid": torch.sigmoid,
    "silu": torch.nn.functional.silu,
}
TWO: dict[str, Op] = {
    **{
        name: lambda x, y, name=name: getattr(x, name)(y)
        for name in [
            "add",
            "sub",
            "mul",
            "div",
            "maximum",
            "minimum",
            "true_divide",
            "__floordiv__",
        ]
    },
    "add alpha 1": lambda x, y: x.add(y, alpha=1),
    "mul of another dtype": lambda x, y: x * y.float(),
    "where": lambda x, y: torch.where(x > y, x, y),
}
SCALED: dict[str, Op] = {
    "add": lambda x, y: x.add(y, alpha=0.7),
    "sub": lambda x, y: x.sub(y, alpha=0.7),
    "add of torch": lambda x, y: torch.add(x, y, alpha=2),
    "sub of torch": lambda x, y: torch.sub(x, y, alpha=2),
    "rsub": lambda x, y: torch.rsub(x, y, alpha=0.7),
    "add_": lambda x, y: x.clone().add_(y, alpha=0.7),
    "sub_": lambda x, y: x.clone().sub_(y, alpha=0.7),
    "a number": lambda x, y: x.add(1.3, alpha=0.7),
}


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    with models.threads(2):
        yield


def run(op: Op, *args: torch.Tensor) -> torch.Tensor:
    """As in a pass of an invariant session."""
    execution = Execution(cast("BoundCache", object()), TileMenu({}, cast("Any", None)))
    with torch.inference_mode(), installed(execution):
        return op(*args)


def is_same(a: torch.Tensor, b: torch.Tensor) -> bool:
    a, b = a.double(), b.double()
    return torch.equal(a.nan_to_num(9e99), b.nan_to_num(9e99)) and torch.equal(
        a.signbit(), b.signbit()
    )


def numbers(dtype: torch.dtype, seed: int) -> torch.Tensor:
    drawn = torch.randn(1031, generator=torch.Generator().manual_seed(seed))
    return (drawn.abs() + 0.01 if seed % 2 else drawn).to(dtype)


def strided(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([x, x], 1)[:, 0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ONE)
def test_of_one_tensor(name: str, dtype: torch.dtype) -> None:
    op = ONE[name]
    for seed in (0, 1):
        x = numbers(dtype, seed)
        whole = run(op, x)
        for a, b in PIECES:
            assert is_same(run(op, x[a:b].clone()), whole[a:b]), (a, b)
            assert is_same(run(op, strided(x[a:b])), whole[a:b]), (a, b)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", TWO)
def test_of_two_tensors(name: str, dtype: torch.dtype) -> None:
    op, x, y = TWO[name], numbers(dtype, 0), numbers(dtype, 1)
    whole = run(op, x, y)
    for a, b in PIECES:
        assert is_same(run(op, x[a:b].clone(), y[a:b].clone()), whole[a:b]), (a, b)
        assert is_same(run(op, strided(x[a:b]), y[a:b].clone()), whole[a:b]), (a, b)
    table, column = x[:1024].view(32, 32), y[:32].view(32, 1)
    whole = run(op, table, column)
    for row in (0, 5, 31):
        here = slice(row, row + 1)
        assert is_same(run(op, table[here].clone(), column[here].clone()), whole[here]), row


@pytest.mark.parametrize("name", SCALED)
def test_a_sum_with_a_factor_is_refused(name: str) -> None:
    """One rounding or two: the vector code multiplies and adds at once, what is left over not."""
    with pytest.raises(Incompatible, match="not known"):
        run(SCALED[name], numbers(torch.float32, 0), numbers(torch.float32, 1))


@pytest.mark.parametrize(
    "name",
    {
        "sum": lambda x: x.sum(-1),
        "mean": lambda x: x.mean(-1),
        "rms_norm": lambda x: torch.nn.functional.rms_norm(x, x.shape[-1:]),
    }.items(),
    ids=lambda item: item[0],
)
def test_a_sum_along_a_row_that_threads_share_is_refused(name: tuple[str, Op]) -> None:
    word, op = name
    x = torch.ones(3, LONG_ROW)
    with pytest.raises(Incompatible, match=word):
        run(op, x)
    assert run(op, x[:, :4096]).shape[0] == 3
