"""Weights laid out beforehand: the plain product's bits, or not used."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch.nn import functional

from kvg_kernels import threads
from kvg_kernels.linear import PACKED_TILES, SMALL_TILE, can_pack, pack, packed_linear
from kvg_kernels.linear.packed import SERIAL_BYTES
from kvg_kernels.threads import OneThread

Made = Callable[..., torch.Tensor]
DEVICE = torch.device("cpu")


@pytest.fixture
def half(made: Made) -> Made:
    """``made`` in the dtype whose weights are laid out."""
    return partial(made, dtype=torch.bfloat16)


needs_layout = pytest.mark.skipif(
    not can_pack(torch.bfloat16, DEVICE), reason="this torch lays out no weights"
)


def proved(weight: torch.Tensor, x: torch.Tensor) -> tuple[int, ...]:
    """What the self-check would let through: rows whose bits are those of the plain product."""
    packed = pack(weight)
    plain = torch.cat([functional.linear(part, weight) for part in x.split(SMALL_TILE)])
    found = {t: [packed_linear(p, packed, None, (t,)) for p in x.split(t)] for t in PACKED_TILES}
    return tuple(tile for tile in PACKED_TILES if torch.equal(torch.cat(found[tile]), plain))


@needs_layout
@pytest.mark.parametrize(("n_in", "n_out"), [(64, 96), (576, 192), (1536, 576), (576, 1600)])
def test_ragged_rows_have_the_bits_of_the_plain_product(
    half: Made, n_in: int, n_out: int, nan_filled: None, n_threads: int
) -> None:
    weight, bias = half(n_out, n_in), half(n_out)
    x = half(64, n_in)
    tiles, packed = proved(weight, x), pack(weight)
    assert 16 in tiles and 2 in tiles
    plain = functional.linear(x[:SMALL_TILE], weight)
    added = functional.linear(x[:SMALL_TILE], weight, bias)
    for n in range(1, SMALL_TILE + 1):
        assert torch.equal(packed_linear(x[:n], packed, None, tiles), plain[:n])
        assert torch.equal(packed_linear(x[:n], packed, bias, tiles), added[:n])


@needs_layout
def test_alignment_changes_no_bit(half: Made) -> None:
    weight = half(96, 64)
    packed, tiles = pack(weight), proved(weight, half(64, 64))
    whole = packed_linear(half(5, 64), packed, None, tiles)
    for skip in (1, 4, 8, 13):
        assert torch.equal(packed_linear(half(5, 64, skip=skip), packed, None, tiles), whole)


@needs_layout
def test_a_weight_that_was_written_to_is_another(half: Made) -> None:
    weight = half(96, 64)
    packed = pack(weight)
    assert packed.is_of(weight)
    weight[0, 0] += 1
    assert not packed.is_of(weight)
    with torch.inference_mode():
        frozen = half(96, 64).clone()
    assert not pack(frozen).is_of(frozen), "nothing counts what is written to it"


def test_fp32_is_not_laid_out() -> None:
    assert not can_pack(torch.float32, DEVICE)
    assert not can_pack(torch.bfloat16, torch.device("meta"))


def test_one_thread_for_a_while(n_threads: int) -> None:
    with OneThread():
        inside = torch.get_num_threads()
    assert inside == (1 if threads._setter() is not None else n_threads)
    assert torch.get_num_threads() == n_threads
    with OneThread(wanted=False):
        assert torch.get_num_threads() == n_threads
    with pytest.raises(ZeroDivisionError), OneThread():
        1 / 0  # noqa: B018
    assert torch.get_num_threads() == n_threads


def test_a_runtime_that_is_not_found_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, n_threads: int
) -> None:
    threads._setter.cache_clear()
    monkeypatch.setattr(threads, "_MAPS", threads.Path("/nowhere"))
    try:
        with OneThread():
            assert torch.get_num_threads() == n_threads
    finally:
        threads._setter.cache_clear()


@needs_layout
def test_small_and_large_weights_agree_whoever_computes(half: Made) -> None:
    for n_out in (64, SERIAL_BYTES // (2 * 576) + 64):
        weight, x = half(n_out, 576), half(3, 576)
        packed, before = pack(weight), torch.get_num_threads()
        found = []
        try:
            for n in (1, 2):
                torch.set_num_threads(n)
                found.append(packed_linear(x, packed, None, (16,)))
        finally:
            torch.set_num_threads(before)
        assert torch.equal(*found)
