from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from kvg.model.cancelling import attention_inputs
from kvg.model.invariant import AttentionShape
from kvg_kernels.attention import (
    BLOCK_TOKENS,
    AttentionSpec,
    attention,
    attention_reference,
    rows_per_tile,
    tile_menu,
)
from kvg_kernels.attention.cpu import LEAST_ROWS

Made = Callable[..., torch.Tensor]
DTYPES = [torch.bfloat16, torch.float32]
SPECS = {
    "full": AttentionSpec(scale=0.25),
    "sliding": AttentionSpec(scale=0.25, window=96),
    "window of one block": AttentionSpec(scale=0.25, window=256),
    "softcap": AttentionSpec(scale=0.25, softcap=20.0),
    "sliding softcap": AttentionSpec(scale=0.25, window=70, softcap=20.0),
}
SPANS = [(0, 1), (0, 2), (0, 257), (255, 1), (255, 2), (256, 1), (250, 20), (500, 40), (767, 1)]
"""(start, tokens)."""


def inputs(
    made: Made,
    n: int,
    dtype: torch.dtype,
    *,
    heads: int = 6,
    groups: int = 2,
    dims: tuple[int, int] = (16, 16),
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    k_dim, v_dim = dims
    query = made(heads, n, k_dim, dtype=dtype) * 2
    keys = made(groups, 3 * BLOCK_TOKENS, k_dim, dtype=dtype)
    return query, keys, made(groups, 3 * BLOCK_TOKENS, v_dim, dtype=dtype)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sinks", [False, True])
def test_is_close_to_its_definition_in_float64(
    made: Made, spec: AttentionSpec, dtype: torch.dtype, sinks: bool, nan_filled: None
) -> None:
    close = (
        {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-5}
    )
    for start, n in SPANS:
        query, keys, values = inputs(made, n, dtype)
        extra = made(6, dtype=dtype) if sinks else None
        found = attention(query, keys, values, start, spec, sinks=extra)
        wide = attention_reference(
            query.double(),
            keys.double(),
            values.double(),
            start,
            spec,
            None if extra is None else extra.double(),
        )
        torch.testing.assert_close(found.double(), wide, **close)


@pytest.mark.parametrize(
    ("heads", "groups", "dims"),
    [(1, 1, (8, 8)), (9, 3, (64, 64)), (4, 4, (16, 24)), (40, 1, (16, 16)), (7, 1, (33, 5))],
)
def test_ragged_heads_and_sizes(
    made: Made, heads: int, groups: int, dims: tuple[int, int], nan_filled: None
) -> None:
    spec = AttentionSpec(scale=dims[0] ** -0.5)
    query, keys, values = inputs(made, 45, torch.float32, heads=heads, groups=groups, dims=dims)
    found = attention(query, keys, values, 240, spec)
    wide = attention_reference(query.double(), keys.double(), values.double(), 240, spec)
    torch.testing.assert_close(found.double(), wide, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_token_keeps_its_bits_however_the_text_is_split(
    made: Made, spec: AttentionSpec, dtype: torch.dtype, n_threads: int
) -> None:
    query, keys, values = inputs(made, 600, dtype)
    whole = attention(query, keys, values, 0, spec)
    for cuts in ([0, 1, 2, 255, 256, 257, 600], [0, 511, 512, 513, 600], [0, 40, 599, 600]):
        parts = [
            attention(query[:, a:b], keys, values, a, spec) for a, b in itertools.pairwise(cuts)
        ]
        assert torch.equal(torch.cat(parts, 1), whole)
    alone = [attention(query[:, i : i + 1], keys, values, i, spec) for i in range(245, 275)]
    assert torch.equal(torch.cat(alone, 1), whole[:, 245:275])


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_change_no_bit(made: Made, spec: AttentionSpec, dtype: torch.dtype) -> None:
    query, keys, values = inputs(made, 300, dtype)
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(attention(query, keys, values, 100, spec))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)


@pytest.mark.parametrize("dtype", [torch.float16, *DTYPES])
@pytest.mark.parametrize("v_dim", [16, 24])
def test_a_lone_tile_has_the_bits_it_has_beside_others(dtype: torch.dtype, v_dim: int) -> None:
    """One key head, one tile: the only item of work in a call, whatever the number of threads.

    Of scores and values whose terms cancel, no rounding is hidden by that of the result.
    """
    shape = AttentionShape(4, 1, 16, v_dim, SPECS["full"], has_sinks=False)
    inputs = attention_inputs(shape, dtype, n_tokens=256, n_blocks=2)
    before = torch.get_num_threads()
    try:
        for query, keys, values in inputs:
            torch.set_num_threads(1)
            whole = attention(query, keys, values, 256, shape.spec)
            for n_threads in (1, 2, 3):
                torch.set_num_threads(n_threads)
                assert torch.equal(attention(query, keys, values, 256, shape.spec), whole)
                for i in range(0, 256, 8):
                    one = attention(query[:, i : i + 1], keys, values, 256 + i, shape.spec)
                    assert torch.equal(one, whole[:, i : i + 1])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [torch.float16, *DTYPES])
@pytest.mark.parametrize("has_sinks", [False, True])
def test_one_key_head_with_a_cap_or_sinks_is_the_same_with_any_threads(
    made: Made, dtype: torch.dtype, has_sinks: bool
) -> None:
    spec = AttentionSpec(scale=20**-0.5, softcap=None if has_sinks else 30.0)
    sinks = made(5, dtype=dtype) if has_sinks else None
    shape = AttentionShape(5, 1, 20, 20, spec, has_sinks)
    before = torch.get_num_threads()
    try:
        for query, keys, values in attention_inputs(shape, dtype, n_tokens=16, n_blocks=2):
            found = []
            for n_threads in (1, 2, 3, 5):
                torch.set_num_threads(n_threads)
                found.append(attention(query, keys, values, 256, spec, sinks=sinks))
            assert all(torch.equal(out, found[0]) for out in found)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_where_the_query_lies_changes_no_bit(
    made: Made, spec: AttentionSpec, dtype: torch.dtype
) -> None:
    query, keys, values = inputs(made, 45, dtype)
    whole = attention(query, keys, values, 230, spec)
    for skip in (1, 4, 8, 13):
        moved = made(6, 45, 16, dtype=dtype, skip=skip) * 1
        flat = made(6 * 45 * 16, dtype=dtype, skip=skip)
        flat.copy_(query.reshape(-1))
        assert torch.equal(attention(flat.view(6, 45, 16), keys, values, 230, spec), whole)
        wide = moved.new_zeros(6, 50, 16)
        wide[:, 5:] = query
        assert torch.equal(attention(wide[:, 5:], keys, values, 230, spec), whole)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_lies_past_the_text_or_before_the_window_changes_no_bit(
    made: Made, spec: AttentionSpec, dtype: torch.dtype
) -> None:
    query, keys, values = inputs(made, 20, dtype)
    start, end = 500, 520
    whole = attention(query, keys, values, start, spec)
    stale_keys, stale_values = keys.clone(), values.clone()
    for stale in (stale_keys, stale_values):
        stale[:, end:] = 60000.0
        if spec.window is not None:
            stale[:, : start - spec.window + 1] = -60000.0
    assert torch.equal(attention(query, stale_keys, stale_values, start, spec), whole)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_capacity_of_the_state_changes_no_bit(made: Made, dtype: torch.dtype) -> None:
    query, keys, values = inputs(made, 30, dtype)
    tight = attention(
        query, keys[:, :256].contiguous(), values[:, :256].contiguous(), 200, SPECS["full"]
    )
    assert torch.equal(attention(query, keys, values, 200, SPECS["full"]), tight)


def test_layers_that_share_masks_get_the_same_bits(made: Made) -> None:
    query, keys, values = inputs(made, 300, torch.float32)
    masks: dict[tuple[int, int, int, int], torch.Tensor] = {}
    for spec in (SPECS["full"], SPECS["sliding"], replace(SPECS["sliding"], window=97)):
        alone = attention(query, keys, values, 10, spec)
        for _ in range(2):
            assert torch.equal(attention(query, keys, values, 10, spec, masks=masks), alone)


def test_layers_of_other_kinds_share_no_mask(made: Made) -> None:
    query, keys, values = inputs(made, 256, torch.float32, heads=2)
    stock = SPECS["full"]
    for specs in ((stock, replace(stock, softcap=30.0)), (replace(stock, softcap=30.0), stock)):
        masks: dict[tuple[int, int, int, int, int], torch.Tensor] = {}
        for spec in specs:
            alone = attention(query, keys, values, 0, spec, tiles=(256,))
            shared = attention(query, keys, values, 0, spec, tiles=(256,), masks=masks)
            assert torch.equal(shared, alone)


def test_the_mask_of_a_whole_block_takes_one_line(made: Made) -> None:
    query, keys, values = inputs(made, 768, torch.bfloat16)
    masks: dict[tuple[int, int, int, int, int], torch.Tensor] = {}
    attention(query, keys, values, 0, SPECS["full"], masks=masks, tiles=(256,))
    assert [mask.numel() for mask in masks.values()] == [n + 255 for n in (256, 512, 768)]


def test_the_window_decides_the_first_block() -> None:
    spec = AttentionSpec(scale=1.0, window=256)
    assert [spec.first_block(block) for block in range(4)] == [0, 0, 1, 2]
    assert [AttentionSpec(1.0, window=257).first_block(block) for block in range(4)] == [0, 0, 1, 2]
    assert [AttentionSpec(1.0, window=258).first_block(block) for block in range(4)] == [0, 0, 0, 1]
    assert AttentionSpec(1.0).first_block(9) == 0


def test_a_tile_is_a_power_of_two_that_divides_a_block() -> None:
    for repeat in range(1, 80):
        tile = rows_per_tile(repeat)
        assert BLOCK_TOKENS % tile == 0
        assert tile == 1 or tile * repeat <= 32


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize(("heads", "groups"), [(6, 2), (4, 4), (5, 1)])
def test_every_tile_of_the_menu_computes_attention(
    made: Made, spec: AttentionSpec, heads: int, groups: int
) -> None:
    """Large tiles lay their heads out otherwise than small ones; all are padded at both ends."""
    repeat = heads // groups
    for start, n in ((0, 256), (5, 300), (500, 9)):
        query, keys, values = inputs(made, start + n, torch.float32, heads=heads, groups=groups)
        query = query[:, :n].contiguous()
        wide = attention_reference(
            query.double(), keys.double(), values.double(), start, spec, None
        )
        for tile in tile_menu(repeat):
            found = attention(query, keys, values, start, spec, tiles=(tile,))
            torch.testing.assert_close(found.double(), wide, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_keys_and_values_may_lie_anywhere(made: Made, dtype: torch.dtype) -> None:
    spec = AttentionSpec(scale=0.25, window=200)
    query = made(6, 45, 16, dtype=dtype)
    keys, values = made(2, 512, 16, dtype=dtype), made(2, 512, 24, dtype=dtype)
    whole = attention(query, keys, values, 300, spec)
    for skip in (1, 4, 8, 13):
        k, v = made(2, 512, 16, dtype=dtype, skip=skip), made(2, 512, 24, dtype=dtype, skip=skip)
        assert torch.equal(attention(query, k, v, 300, spec), whole)


@pytest.mark.parametrize(("heads", "groups"), [(4, 4), (6, 3), (6, 2), (8, 2)])
def test_no_call_has_fewer_rows_than_the_library_sums_in_one_order(
    made: Made, monkeypatch: pytest.MonkeyPatch, heads: int, groups: int
) -> None:
    """The rows that are missing are made up, and what they give is left out."""
    query, keys, values = inputs(made, 301, torch.bfloat16, heads=heads, groups=groups)
    n_rows, stock = [], functional.scaled_dot_product_attention

    def noted(query: torch.Tensor, *rest: object, **named: object) -> torch.Tensor:
        n_rows.append(query.shape[-2])
        return stock(query, *rest, **named)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", noted)
    spec = AttentionSpec(scale=0.25)
    many = attention(query[:, 300:301], keys, values, 300, spec, tiles=(16,))
    for tile in (1, 2):
        found = attention(query[:, 300:301], keys, values, 300, spec, tiles=(tile,))
        assert found.shape == many.shape
        torch.testing.assert_close(found, many)
    assert min(n_rows) >= LEAST_ROWS
