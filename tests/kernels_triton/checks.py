"""What must hold for an operator, as functions of the operator: for each form, and for mutants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from kvg_kernels.attention import AttentionSpec, attention_reference

Operator = Callable[..., torch.Tensor]

TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""Largest difference from float64, relative where the result is larger than 1."""


def sample(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Numbers in [-1, 1) that the seed fixes."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(*shape, generator=generator) * 2 - 1).to(dtype)


def misaligned(x: torch.Tensor) -> torch.Tensor:
    """The same numbers, contiguous, at an address that is no multiple of 64."""
    room = x.new_empty(x.numel() + 1)
    room[1:] = x.reshape(-1)
    return room[1:].view(x.shape)


@contextmanager
def nan_filled() -> Iterator[None]:
    """Every new tensor is full of NaN: what an operator forgets to write is seen."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def assert_close(
    got: torch.Tensor, true: torch.Tensor, dtype: torch.dtype, scale: float = 1
) -> None:
    """``got`` is finite and differs from float64 by no more than its dtype explains."""
    assert got.dtype is dtype
    assert torch.isfinite(got).all()
    error = (got.double() - true.double()).abs() / true.double().abs().clamp(min=1)
    worst = error.max().item() if got.numel() else 0.0
    assert worst <= TOLERANCE[dtype] * scale, f"off by {worst}"


def assert_bits(a: torch.Tensor, b: torch.Tensor) -> None:
    """The same shape, dtype and bytes."""
    assert a.shape == b.shape and a.dtype is b.dtype
    same = a.contiguous().view(torch.uint8).eq(b.contiguous().view(torch.uint8))
    assert same.all(), f"{(~same).sum().item()} bytes differ"


def check_linear_rows(linear: Operator, dtype: torch.dtype) -> None:
    """A row's bits are those it has in any other number of rows, place and alignment."""
    m, k, n = 150, 200, 130
    x, weight = sample(m, k, dtype=dtype), sample(n, k, dtype=dtype, seed=1)
    bias = sample(n, dtype=dtype, seed=2)
    whole = linear(x, weight, bias)
    for first, last in ((0, 1), (149, 150), (7, 24), (21, 150)):
        assert_bits(linear(x[first:last], weight, bias), whole[first:last])
    assert_bits(linear(misaligned(x), misaligned(weight), misaligned(bias)), whole)
    assert_bits(linear(x[:2].view(2, 1, k), weight, bias), whole[:2].view(2, 1, n))


def check_linear_close(linear: Operator, dtype: torch.dtype) -> None:
    """Ragged shapes, with and without bias, against float64."""
    for m, k, n in ((1, 16, 1), (5, 33, 7), (17, 130, 129), (0, 8, 4)):
        x, weight, bias = (
            sample(m, k, dtype=dtype),
            sample(n, k, dtype=dtype, seed=1),
            sample(n, dtype=dtype),
        )
        true = x.double() @ weight.double().T
        with nan_filled():
            assert_close(linear(x, weight), true, dtype, scale=k**0.5 / 4)
            assert_close(linear(x, weight, bias), true + bias.double(), dtype, scale=k**0.5 / 4)


def check_linear_order(linear: Operator, depth: int, dtype: torch.dtype) -> None:
    """K is walked in ascending tiles of ``depth`` into one fp32 sum: what cancels shows the order.

    One term per tile, 2^27, 1, -2^27, 1: ascending, the first 1 is lost and the second is not.
    """
    for m in (1, 2, 130):
        x, weight = torch.zeros(m, 4 * depth, dtype=dtype), torch.zeros(1, 4 * depth, dtype=dtype)
        for tile, (left, right) in enumerate(((2**13, 2**14), (1, 1), (-(2**13), 2**14), (1, 1))):
            x[:, tile * depth], weight[:, tile * depth] = left, right
        assert linear(x, weight).tolist() == [[1.0]] * m


def attention_inputs(
    n: int, heads: int, groups: int, k_dim: int, v_dim: int, dtype: torch.dtype, *, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Query ``[heads, n, k_dim]``; keys and values up to a block of 256, zeros past n."""
    capacity = -(-n // 256) * 256
    keys = torch.zeros(groups, capacity, k_dim, dtype=dtype)
    values = torch.zeros(groups, capacity, v_dim, dtype=dtype)
    keys[:, :n] = sample(groups, n, k_dim, dtype=dtype, seed=seed + 1)
    values[:, :n] = sample(groups, n, v_dim, dtype=dtype, seed=seed + 2)
    return sample(heads, n, k_dim, dtype=dtype, seed=seed) * 2, keys, values


SPECS = {
    "full": AttentionSpec(scale=0.25),
    "window": AttentionSpec(scale=0.25, window=50),
    "softcap": AttentionSpec(scale=0.5, softcap=3.0),
    "window and softcap": AttentionSpec(scale=0.25, window=33, softcap=2.0),
}


def check_attention_close(attention: Operator, dtype: torch.dtype) -> None:
    """Grouped heads, unequal and odd head sizes, every kind of layer, against float64."""
    for n, heads, groups, k_dim, v_dim in (
        (90, 4, 2, 16, 16),
        (140, 6, 2, 24, 40),
        (1, 3, 1, 8, 8),
    ):
        query, keys, values = attention_inputs(n, heads, groups, k_dim, v_dim, dtype)
        start = n - min(n, 60)
        part = query[:, start:]
        for i, spec in enumerate(SPECS.values()):
            sinks = None if (i + n) % 4 < 2 else sample(heads, seed=3) * 3
            wide = None if sinks is None else sinks.double()
            true = attention_reference(
                part.double(), keys.double(), values.double(), start, spec, wide
            )
            with nan_filled():
                got = attention(part, keys, values, start, spec, sinks=sinks)
            assert_close(got, true, dtype)


def check_attention_splits(
    attention: Operator,
    dtype: torch.dtype,
    *,
    k_dim: int = 16,
    heads: int = 4,
    specs: Iterable[str] = tuple(SPECS),
) -> None:
    """One call, chunks of any size and single tokens agree, whatever lies behind their end."""
    n = 150
    query, keys, values = attention_inputs(n, heads, 2, k_dim, k_dim, dtype)
    sinks = sample(heads, seed=3)
    for name in specs:
        spec = SPECS[name]
        whole = attention(query, keys, values, 0, spec, sinks=sinks)
        for first, last in ((0, 37), (37, 149), (63, 65), (149, 150)):
            known_keys, known_values = keys.clone(), values.clone()
            known_keys[:, last:], known_values[:, last:] = 0, 0
            part = query[:, first:last].contiguous()
            got = attention(part, known_keys, known_values, first, spec, sinks=sinks)
            assert_bits(got, whole[:, first:last])


def check_attention_order(attention: Operator, tile: int, dtype: torch.dtype) -> None:
    """Key tiles are taken in ascending order: equal weights, values that cancel across tiles."""
    n = 4 * tile
    capacity = -(-n // 256) * 256
    query = torch.zeros(1, 1, 16, dtype=dtype)
    keys, values = torch.zeros(2, 1, capacity, 16, dtype=dtype)
    for i, value in enumerate((2.0**15, 2.0**-10, -(2.0**15), 2.0**-10)):
        values[:, i * tile] = value
    out = attention(query, keys, values, n - 1, AttentionSpec(scale=1.0))
    assert out.float().unique().tolist() == [2.0**-10 / n]


def check_bmm(bmm: Operator, baddbmm: Operator, dtype: torch.dtype) -> None:
    """Items and rows are independent of one another; float64 is near."""
    a, b = sample(2, 70, 40, dtype=dtype), sample(2, 40, 33, dtype=dtype, seed=1)
    bias = sample(2, 1, 33, dtype=dtype, seed=2)
    for factor in (b, b.mT.contiguous().mT):
        with nan_filled():
            whole, added = bmm(a, factor), baddbmm(bias, a, factor, beta=0.5, alpha=2.0)
        true = a.double() @ b.double()
        assert_close(whole, true, dtype, scale=2)
        assert_close(added, 0.5 * bias.double() + 2 * true, dtype, scale=4)
        for size in (1, 17):
            part = a[:, 70 - size :]
            assert_bits(bmm(part, factor), whole[:, 70 - size :])
            assert_bits(baddbmm(bias, part, factor, beta=0.5, alpha=2.0), added[:, 70 - size :])
        for item in range(2):
            one = slice(item, item + 1)
            assert_bits(bmm(a[one], factor[one]), whole[one])
            assert_bits(
                baddbmm(bias[one].expand(1, 70, 33), a[one], factor[one], beta=0.5, alpha=2.0),
                added[one],
            )
        assert_bits(bmm(misaligned(a), factor), whole)
    assert bmm(a[:, :0], b).shape == (2, 0, 33)


def check_rows(operator: Operator, x: torch.Tensor) -> torch.Tensor:
    """A row-wise operator gives a row the same bits in any company; returns the whole result."""
    with nan_filled():
        whole = operator(x)
    assert torch.isfinite(whole).all()
    for size in (1, 2, 5):
        assert_bits(operator(x[-size:]), whole[-size:])
        assert_bits(operator(x[:size]), whole[:size])
    assert_bits(operator(misaligned(x)), whole)
    assert_bits(operator(x.unsqueeze(0)), whole.unsqueeze(0))
    return whole


def check_attention_zero(attention: Operator) -> None:
    """A zero is positive, also where a negative result is too small for fp32."""
    query, keys, values = torch.zeros(1, 1, 16), *torch.zeros(2, 1, 256, 16)
    values[:, 0] = -(2.0**-149)
    out = attention(query, keys, values, 1, AttentionSpec(scale=1.0))
    assert_bits(out, torch.zeros_like(out))


def check_paged(
    paged: Operator,
    attention: Operator,
    scatter: Callable[..., Any],
    layout: Any,
    dtype: torch.dtype,
) -> None:
    """Two texts of unlike lengths that share their first page: the bits of contiguous keys."""
    per_page = layout.page_tokens
    lengths, heads = (per_page + 150, per_page + 290), layout.kv_heads * 2
    texts = [
        attention_inputs(n, heads, layout.kv_heads, layout.k_dim, layout.v_dim, dtype, seed=10 * i)
        for i, n in enumerate(lengths)
    ]
    for own, shared in zip(texts[1][1:], texts[0][1:], strict=True):
        own[:, :per_page] = shared[:, :per_page]
    pool = torch.full((16, layout.slot_elements), float("nan"), dtype=dtype)
    slots = torch.randperm(16, generator=torch.Generator().manual_seed(4)).tolist()
    tables = torch.full((2, -(-max(lengths) // per_page)), slots.pop())
    for table, n, (_, keys, values) in zip(tables, lengths, texts, strict=True):
        for page, first in enumerate(range(0, n, per_page)):
            table[page] = slots.pop()
            span = slice(first, min(first + per_page, n))
            held = torch.cat([keys[:, span].reshape(-1), values[:, span].reshape(-1)])
            scatter(
                torch.cat([torch.zeros_like(held), held]),
                pool,
                int(table[page]),
                layout,
                span.stop - first,
            )
    tables[1, 0] = tables[0, 0]
    for spec, n_new in ((SPECS["full"], 1), (SPECS["window and softcap"], 40)):
        starts = [length - n_new for length in lengths]
        parts = [text[0][:, start:].contiguous() for text, start in zip(texts, starts, strict=True)]
        with nan_filled():
            got = paged(torch.stack(parts), pool, tables, starts, spec, layout, 1)
        for row, start in enumerate(starts):
            one = slice(row, row + 1)
            alone = paged(parts[row][None], pool, tables[one], [start], spec, layout, 1)
            assert_bits(got[one], alone)
            assert_bits(got[row], attention(parts[row], *texts[row][1:], start, spec))
