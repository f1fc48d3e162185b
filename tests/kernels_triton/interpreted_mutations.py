"""Kernels broken on purpose: the checks that the operators pass must refuse each of these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

import kvg_kernels.attention.paged
import kvg_kernels.attention.triton
import kvg_kernels.linear.triton
import kvg_kernels.pages.triton
import kvg_kernels.softmax.triton
import kvg_kernels.tiles
from kvg_kernels.tiles import TILES
from tests.kernels_triton import checks
from tests.kernels_triton.breaking import broken

FLOAT = torch.float32
DEPTH = TILES[FLOAT].depth


def refused(check: Callable[..., None], *given: object) -> None:
    with pytest.raises(AssertionError):
        check(*given)


def linear_with(folder: Path, name: str, *changes: tuple[str, str]) -> checks.Operator:
    """``linear`` over a ``tile_product`` with the changes."""
    broken(folder, kvg_kernels.tiles, f"{name}_tiles", *changes)
    imported = ("from kvg_kernels.tiles import", f"from {name}_tiles import")
    return broken(folder, kvg_kernels.linear.triton, name, imported).linear


def test_split_k(tmp_path: Path) -> None:
    linear = linear_with(
        tmp_path,
        "split_k",
        ("    for step in range(", "    half = acc\n    for step in range("),
        ("        acc = tl.dot(a, b, acc,", "        part = tl.dot(a, b,"),
        ("    return acc\n", "    return acc + half\n"),
        (
            'input_precision="ieee")\n',
            'input_precision="ieee")\n'
            "        if step * 2 < tl.cdiv(k_size, BLOCK_K):\n"
            "            acc += part\n"
            "        else:\n"
            "            half += part\n",
        ),
    )
    checks.check_linear_close(linear, FLOAT)
    refused(checks.check_linear_order, linear, DEPTH, FLOAT)


def test_k_backwards(tmp_path: Path) -> None:
    linear = linear_with(
        tmp_path,
        "k_backwards",
        ("k = step * BLOCK_K", "k = (tl.cdiv(k_size, BLOCK_K) - 1 - step) * BLOCK_K"),
    )
    checks.check_linear_close(linear, FLOAT)
    refused(checks.check_linear_order, linear, DEPTH, FLOAT)


def test_another_tile_for_one_row(tmp_path: Path) -> None:
    module = broken(
        tmp_path,
        kvg_kernels.linear.triton,
        "other_tile",
        ("BLOCK_K=tile.depth", "BLOCK_K=tile.depth // 2 if n_rows == 1 else tile.depth"),
    )
    checks.check_linear_close(module.linear, FLOAT)
    refused(checks.check_linear_rows, module.linear, FLOAT)


def test_split_k_for_one_row(tmp_path: Path) -> None:
    kept = kvg_kernels.linear.triton.linear

    def linear(
        x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        half = x.shape[-1] // 2
        if x.shape[0] != 1:
            return kept(x, weight, bias)
        return kept(x[..., :half], weight[:, :half], bias) + kept(x[..., half:], weight[:, half:])

    refused(checks.check_linear_rows, linear, FLOAT)


def attention_with(folder: Path, name: str, *changes: tuple[str, str]) -> ModuleType:
    return broken(folder, kvg_kernels.attention.triton, name, *changes)


def test_key_tiles_backwards(tmp_path: Path) -> None:
    module = attention_with(
        tmp_path,
        "keys_backwards",
        ("    for block in range(low, high):", "    for block in range(high - 1, low - 1, -1):"),
    )
    checks.check_attention_close(module.attention, FLOAT)
    tile = module.attention_tile(16, 16, 4).keys
    refused(checks.check_attention_order, module.attention, tile, FLOAT)


@pytest.mark.parametrize(
    "window", ["position[:, None] - WINDOW - 1", "position[:, None] - WINDOW + 1"]
)
def test_window_off_by_one(tmp_path: Path, window: str) -> None:
    module = attention_with(tmp_path, "window_off", ("position[:, None] - WINDOW", window))
    refused(checks.check_attention_close, module.attention, FLOAT)


def test_window_that_begins_a_tile_late(tmp_path: Path) -> None:
    module = attention_with(
        tmp_path,
        "window_late",
        ("- WINDOW + 1, 0) // BLOCK_KEYS", "- WINDOW + 1, 0) // BLOCK_KEYS + 1"),
    )
    refused(checks.check_attention_close, module.attention, FLOAT)


def test_a_look_ahead(tmp_path: Path) -> None:
    module = attention_with(tmp_path, "ahead", ("<= position[:, None]", "<= position[:, None] + 1"))
    refused(checks.check_attention_splits, module.attention, FLOAT)


def test_another_key_tile_for_one_token(tmp_path: Path) -> None:
    module = attention_with(
        tmp_path,
        "other_keys",
        ("BLOCK_KEYS=tile.keys", "BLOCK_KEYS=16 if n_tokens == 1 else tile.keys"),
    )
    checks.check_attention_close(module.attention, FLOAT)
    refused(checks.check_attention_splits, module.attention, FLOAT)


LAYOUT = kvg_kernels.pages.PageLayout(n_layers=2, kv_heads=2, page_tokens=64, k_dim=16, v_dim=24)
READ = "tables_ptr + slot * n_pages + page_index"


@pytest.mark.parametrize(
    "read",
    ["tables_ptr + page_index * 0", "tables_ptr + page_index", "tables_ptr + slot * n_pages"],
    ids=["a stale page", "pages of another sequence", "the first page again"],
)
def test_other_pages(tmp_path: Path, read: str) -> None:
    module = attention_with(tmp_path, "other_pages", (READ, read))
    scatter = kvg_kernels.pages.page_scatter
    refused(checks.check_paged, module.paged_attention, module.attention, scatter, LAYOUT, FLOAT)


@pytest.mark.parametrize(
    "change",
    [
        ("tables[i].tolist()", "tables[0].tolist()"),
        ("pool[table[page]]", "pool[table[0]]"),
        ("2 * layer + 1", "2 * layer"),
    ],
    ids=["pages of another sequence", "the first page again", "keys for values"],
)
def test_other_pages_on_a_cpu(tmp_path: Path, change: tuple[str, str]) -> None:
    module = broken(tmp_path, kvg_kernels.attention.paged, "other_pages_cpu", change)
    scatter = kvg_kernels.pages.page_scatter
    layout = replace(LAYOUT, v_dim=LAYOUT.k_dim)
    attention = kvg_kernels.attention.attention
    refused(checks.check_paged, module.paged_attention, attention, scatter, layout, FLOAT)


def test_the_sign_of_zero_is_kept(tmp_path: Path) -> None:
    module = attention_with(
        tmp_path, "signed_zero", ("    out = tl.where(out == 0.0, 0.0, out)\n", "")
    )
    checks.check_attention_close(module.attention, FLOAT)
    refused(checks.check_attention_zero, module.attention)


def test_another_block_for_longer_rows(tmp_path: Path) -> None:
    module = broken(
        tmp_path,
        kvg_kernels.softmax.triton,
        "softmax_other",
        ("BLOCK=BLOCK_COLUMNS", "BLOCK=128 if rows.shape[1] > 1024 else BLOCK_COLUMNS"),
    )
    x = checks.sample(3, 700) * 8
    longer = torch.cat([x, torch.full((3, 900), float("-inf"))], -1)
    kept = kvg_kernels.softmax.triton.softmax
    checks.assert_bits(kept(longer)[:, :700], kept(x))
    refused(checks.assert_bits, module.softmax(longer)[:, :700], module.softmax(x))
