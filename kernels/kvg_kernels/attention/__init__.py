"""Causal attention in query tiles fixed to absolute positions."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kvg_kernels.alignment import aligned
from kvg_kernels.attention import paged
from kvg_kernels.attention.cpu import MaskCache, rows_per_tile, tile_menu
from kvg_kernels.attention.cpu import attention as _on_cpu
from kvg_kernels.attention.paged import paged_attention_reference
from kvg_kernels.attention.reference import attention_reference
from kvg_kernels.attention.spec import BLOCK_TOKENS, AttentionSpec
from kvg_kernels.pages import PageLayout

__all__ = [
    "BLOCK_TOKENS",
    "AttentionSpec",
    "MaskCache",
    "attention",
    "attention_reference",
    "paged_attention",
    "paged_attention_reference",
    "rows_per_tile",
    "tile_menu",
]


def attention(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    start: int,
    spec: AttentionSpec,
    *,
    sinks: torch.Tensor | None = None,
    masks: MaskCache | None = None,
    tiles: Sequence[int] = (),
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention of queries at positions ``start``, ``start + 1``, … over ``keys`` from position 0.

    Shapes: query ``[H, T, Dk]``; keys ``[G, C, Dk]`` and values ``[G, C, Dv]`` with G dividing H,
    C a multiple of 256 that covers ``start + T``, copied where the first element is not 64-byte
    aligned; sinks ``[H]`` or None; result ``[H, T, Dv]``. Keys past a query's own position are not
    seen, but must be finite. ``masks`` is a cache that the layers of one forward pass may share; a
    GPU needs none. ``tiles`` is the menu of positions per tile on a CPU; a GPU has one. ``out``, of
    the result's shape and any strides, is where the result goes.
    """
    if query.is_cuda:
        from kvg_kernels.attention.triton import attention as on_gpu

        found = on_gpu(query.contiguous(), keys, values, start, spec, sinks=sinks)
        return found if out is None else out.copy_(found)
    keys, values = aligned(keys), aligned(values)
    return _on_cpu(query, keys, values, start, spec, sinks=sinks, masks=masks, tiles=tiles, out=out)


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
    """``attention`` of several sequences over pages of one pool: the same bits for each.

    Shapes: query ``[B, H, T, Dk]``, the new tokens of B sequences at positions ``starts[b]``, …;
    pool ``[n_slots, layout.slot_elements]``; tables ``[B, n_pages]``: the slot of each page from
    position 0, anything past a sequence's end; ``layer`` counts within the layout; result
    ``[B, H, T, Dv]``. The new tokens' own keys and values lie in the pool already. Slots may occur
    in several tables. Raises ``ValueError`` for shapes that do not belong together.
    """
    if query.is_cuda:
        from kvg_kernels.attention.triton import paged_attention as on_gpu

        return on_gpu(query, pool, tables, starts, spec, layout, layer, sinks=sinks)
    return paged.paged_attention(query, pool, tables, starts, spec, layout, layer, sinks=sinks)
