"""Attention over pages of a pool, named by a block table: its definition and its CPU form."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from kvg_kernels.attention.cpu import attention
from kvg_kernels.attention.reference import attention_reference
from kvg_kernels.attention.spec import BLOCK_TOKENS, AttentionSpec
from kvg_kernels.pages import PageLayout


def check_paged(
    query: torch.Tensor,
    pool: torch.Tensor,
    tables: torch.Tensor,
    starts: Sequence[int],
    layout: PageLayout,
    layer: int,
) -> None:
    """Raise ``ValueError`` for shapes that do not belong together or tables that are too short."""
    n_slots, n_heads, n_tokens, k_dim = query.shape
    if pool.dim() != 2 or pool.shape[1] != layout.slot_elements:
        raise ValueError(f"pool of shape {tuple(pool.shape)}: not of the layout")
    if k_dim != layout.k_dim or n_heads % layout.kv_heads:
        raise ValueError(f"query of shape {tuple(query.shape)}: not of the layout")
    if not 0 <= layer < layout.n_layers:
        raise ValueError(f"layer {layer}: the layout has {layout.n_layers}")
    if tables.shape[0] != n_slots or len(starts) != n_slots:
        raise ValueError(f"{tables.shape[0]} tables and {len(starts)} starts for {n_slots} slots")
    if max(starts) + n_tokens > tables.shape[1] * layout.page_tokens:
        raise ValueError(f"tables of {tables.shape[1]} pages end before the queries do")


def paged_attention_reference(
    query: torch.Tensor,
    pool: torch.Tensor,
    tables: torch.Tensor,
    starts: Sequence[int],
    spec: AttentionSpec,
    layout: PageLayout,
    layer: int,
    *,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """``attention_reference`` of every sequence over its own pages, in the dtype of its inputs."""

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, start: int) -> torch.Tensor:
        return attention_reference(q, k, v, start, spec, sinks)

    return _each(query, pool, tables, starts, layout, layer, attend)


def paged_attention(
    query: torch.Tensor,
    pool: torch.Tensor,
    tables: torch.Tensor,
    starts: Sequence[int],
    spec: AttentionSpec,
    layout: PageLayout,
    layer: int,
    *,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """``attention`` of every sequence over its own pages: the same bits, from gathered keys."""

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, start: int) -> torch.Tensor:
        return attention(q, k, v, start, spec, sinks=sinks)

    return _each(query, pool, tables, starts, layout, layer, attend)


def _each(
    query: torch.Tensor,
    pool: torch.Tensor,
    tables: torch.Tensor,
    starts: Sequence[int],
    layout: PageLayout,
    layer: int,
    attend: Callable[[torch.Tensor, torch.Tensor, torch.Tensor, int], torch.Tensor],
) -> torch.Tensor:
    check_paged(query, pool, tables, starts, layout, layer)
    out = query.new_empty(*query.shape[:3], layout.v_dim)
    for i, start in enumerate(starts):
        end = start + query.shape[2]
        keys, values = _gathered(pool, tables[i].tolist(), end, layout, layer)
        out[i] = attend(query[i].contiguous(), keys, values, start)
    return out


def _gathered(
    pool: torch.Tensor, table: Sequence[int], end: int, layout: PageLayout, layer: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of positions [0, end), with zeros up to a whole block of 256."""
    capacity = -(-end // BLOCK_TOKENS) * BLOCK_TOKENS
    keys = pool.new_zeros(layout.kv_heads, capacity, layout.k_dim)
    values = pool.new_zeros(layout.kv_heads, capacity, layout.v_dim)
    for page, first in enumerate(range(0, end, layout.page_tokens)):
        n = min(layout.page_tokens, end - first)
        tensors = layout.tensors(pool[table[page]], layout.page_tokens)
        keys[:, first : first + n] = tensors[2 * layer][:, :n]
        values[:, first : first + n] = tensors[2 * layer + 1][:, :n]
    return keys, values
