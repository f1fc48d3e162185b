from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

import kvg_kernels.linear.cpu
from kvg_kernels.linear import SMALL_TILE, TILES, linear, linear_reference, whole_rows
from kvg_kernels.linear.cpu import row_tiles

Made = Callable[..., torch.Tensor]
DTYPES = [torch.bfloat16, torch.float32]
ROWS = [1, 2, 3, 15, 16, 17, 63, 64, 65, 255, 256, 257, 600]
ONE = (SMALL_TILE,)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n_in", "n_out"), [(64, 96), (33, 7), (576, 192)])
def test_equals_its_definition_bit_for_bit(
    made: Made, dtype: torch.dtype, n_in: int, n_out: int, nan_filled: None
) -> None:
    weight, bias = made(n_out, n_in, dtype=dtype), made(n_out, dtype=dtype)
    for n in ROWS:
        x = made(n, n_in, dtype=dtype)
        for b in (None, bias):
            found = linear(x, weight, b, tiles=ONE)
            assert torch.equal(found, linear_reference(x, weight, b, tile=SMALL_TILE))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tiles", [TILES, ONE])
def test_is_close_to_float64(
    made: Made, dtype: torch.dtype, tiles: tuple[int, ...], nan_filled: None
) -> None:
    weight, bias = made(192, 130, dtype=dtype), made(192, dtype=dtype)
    close = {"rtol": 2e-2, "atol": 0.3} if dtype == torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-4}
    for n in ROWS:
        x = made(n, 130, dtype=dtype)
        wide = torch.nn.functional.linear(x.double(), weight.double(), bias.double())
        torch.testing.assert_close(linear(x, weight, bias, tiles=tiles).double(), wide, **close)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_keeps_its_bits_in_any_company(
    made: Made, dtype: torch.dtype, n_threads: int
) -> None:
    weight, x = made(96, 64, dtype=dtype), made(600, 64, dtype=dtype)
    whole = linear(x, weight, tiles=ONE)
    for cuts in ([0, 1, 2, 600], [0, 255, 256, 257, 600], [0, 17, 599, 600]):
        parts = [linear(x[a:b], weight, tiles=ONE) for a, b in itertools.pairwise(cuts)]
        assert torch.equal(torch.cat(parts), whole)
    assert torch.equal(linear(x.flip(0), weight, tiles=ONE).flip(0), whole)


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_and_alignment_change_no_bit(made: Made, dtype: torch.dtype) -> None:
    weight = made(96, 64, dtype=dtype)
    aligned = linear(made(130, 64, dtype=dtype), weight, tiles=ONE)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            for skip in (0, 1, 4, 8, 13):
                x = made(130, 64, dtype=dtype, skip=skip)
                assert torch.equal(linear(x, weight, tiles=ONE), aligned)
                wide = made(130, 80, dtype=dtype, skip=skip)
                wide[:, 3:67] = x
                assert torch.equal(linear(wide[:, 3:67], weight, tiles=ONE), aligned)
    finally:
        torch.set_num_threads(before)


@pytest.fixture
def two_rows(made: Made) -> tuple[torch.Tensor, torch.Tensor]:
    """A weight and rows 8 bytes past a line of the cache, with which the stock layer differs."""
    weight, x = made(192, 576), made(2, 576, skip=2)
    if torch.equal(functional.linear(x, weight), functional.linear(made(2, 576), weight)):
        pytest.skip("this machine's stock linear layer gives two fp32 rows the same bits anywhere")
    return weight, x


def test_two_rows_keep_their_bits_at_any_address(
    made: Made, two_rows: tuple[torch.Tensor, torch.Tensor]
) -> None:
    """The smallest tile in fp32, which the library computes otherwise 8 bytes past a line."""
    weight, x = two_rows
    tile = (2,)
    for rows in (x, torch.cat([x, x])):
        found = linear(rows, weight, tiles=tile)
        assert torch.equal(found[:2], linear(made(2, 576), weight, tiles=tile))


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_and_biases_may_lie_anywhere(made: Made, dtype: torch.dtype) -> None:
    x = made(5, 576, dtype=dtype)
    whole = linear(x, made(192, 576, dtype=dtype), made(192, dtype=dtype))
    for skip in (1, 4, 8, 13):
        weight, bias = made(192, 576, dtype=dtype, skip=skip), made(192, dtype=dtype, skip=skip)
        assert torch.equal(linear(x, weight, bias), whole)
        columns = weight.t().contiguous().t()
        assert not columns.is_contiguous() and torch.equal(linear(x, columns, bias), whole)


@pytest.mark.parametrize("dtype", DTYPES)
def test_without_a_proved_menu_a_row_keeps_its_bits(made: Made, dtype: torch.dtype) -> None:
    """The default is the one tile that others are compared with, in every dtype."""
    weight, x = made(192, 576, dtype=dtype), made(600, 576, dtype=dtype)
    whole = linear(x, weight)
    for n in ROWS:
        assert torch.equal(linear(x[:n], weight), whole[:n]), n
        assert torch.equal(linear(x[-n:], weight), whole[-n:]), n
    assert torch.equal(whole, linear(x, weight, tiles=ONE))


def test_an_alignment_left_out_shows(
    two_rows: tuple[torch.Tensor, torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    weight, x = two_rows
    expected = linear(x, weight, tiles=(2,))
    monkeypatch.setattr(kvg_kernels.linear.cpu, "aligned", torch.Tensor.contiguous)
    assert not torch.equal(linear(x, weight, tiles=(2,)), expected)


def test_leading_dimensions_are_kept(made: Made) -> None:
    x, weight = made(2, 3, 5, 64), made(96, 64)
    found = linear(x, weight, tiles=ONE)
    assert found.shape == (2, 3, 5, 96)
    assert torch.equal(found.view(-1, 96), linear(x.view(-1, 64), weight, tiles=ONE))


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 79, 80, 81, 1023, 1024, 1025, 2600])
def test_tiles_cover_every_row_once(n: int) -> None:
    covered = [row for start, used, _ in row_tiles(n, TILES) for row in range(start, start + used)]
    assert covered == list(range(n))
    assert all(tile in TILES and 0 < used <= tile for _, used, tile in row_tiles(n, TILES))


def test_rows_are_covered_by_whole_tiles_with_little_waste() -> None:
    for n in range(1, 2200):
        parts = [*row_tiles(n, TILES)]
        ends = [0, *itertools.accumulate(used for _, used, _ in parts)]
        assert [start for start, _, _ in parts] == ends[:-1] and ends[-1] == n
        assert all(used == tile for _, used, tile in parts[:-1])
        assert all(tile in TILES for _, _, tile in parts)
        whole = whole_rows(n)
        assert whole == sum(tile for _, _, tile in parts) and whole_rows(whole) == whole
        assert whole - n <= max(31, n // 7)


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_written_in_place_has_the_bits_of_the_stock_call(
    made: Made, dtype: torch.dtype, with_bias: bool, nan_filled: None
) -> None:
    """Whole tiles go through mm and addmm; what the self-check proves is functional.linear."""
    weight = made(96, 64, dtype=dtype)
    bias = made(96, dtype=dtype) if with_bias else None
    x = made(336, 64, dtype=dtype)
    found = linear(x, weight, bias, tiles=(256, 64, 16))
    parts = [functional.linear(x[a:b], weight, bias) for a, b in ((0, 256), (256, 320), (320, 336))]
    assert torch.equal(found, torch.cat(parts))
