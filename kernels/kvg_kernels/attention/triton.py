"""``attention`` in Triton: query tiles and key tiles that absolute positions fix.

One kernel reads keys through a block table; contiguous keys are pages in ascending order. The
head dimensions, the page and the dtype are a model's own and are compiled in; what a call brings
(tokens, starts, tables) never is, so one binary computes prefill, chunks and decode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from kvg_kernels.alignment import aligned
from kvg_kernels.attention.paged import check_paged
from kvg_kernels.attention.spec import BLOCK_TOKENS, AttentionSpec
from kvg_kernels.interpreter import is_widened, store_dtype
from kvg_kernels.pages import PageLayout

LOG2_E = 1.4426950408889634


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """Query rows (positions times heads that share a key head) and keys of one tile."""

    rows: int
    keys: int
    warps: int
    stages: int


TILES = {
    256: AttentionTile(rows=128, keys=64, warps=8, stages=2),
    512: AttentionTile(rows=64, keys=32, warps=4, stages=2),
    1024: AttentionTile(rows=64, keys=32, warps=8, stages=1),
    2048: AttentionTile(rows=32, keys=16, warps=8, stages=1),
}
"""The one tile of a head's width in bytes (the wider of k and v, up to a power of two)."""


def attention_tile(k_dim: int, v_dim: int, element_size: int) -> AttentionTile:
    """The tile of a head; raises ``ValueError`` for one that is too wide."""
    width = max(256, triton.next_power_of_2(max(k_dim, v_dim)) * element_size)
    if width not in TILES:
        raise ValueError(f"heads of {max(k_dim, v_dim)}: no attention tile is that wide")
    return TILES[width]


def attention(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    start: int,
    spec: AttentionSpec,
    *,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention of queries at positions ``start``, ``start + 1``, … over ``keys`` from position 0.

    Shapes: query ``[H, T, Dk]``, keys ``[G, C, Dk]``, values ``[G, C, Dv]`` with C a multiple of
    256 that covers ``start + T``; sinks ``[H]`` or None; result ``[H, T, Dv]``.
    """
    n_pages = keys.shape[1] // BLOCK_TOKENS
    table = torch.arange(n_pages, dtype=torch.int32, device=query.device).unsqueeze(0)
    out = _launch(
        query.unsqueeze(0),
        aligned(keys),
        aligned(values),
        table,
        (start,),
        spec,
        sinks,
        head_pages=n_pages,
        page_tokens=BLOCK_TOKENS,
        strides=(BLOCK_TOKENS * keys.shape[2], BLOCK_TOKENS * values.shape[2]),
        kv_heads=keys.shape[0],
        v_dim=values.shape[2],
    )
    return out[0]


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
    """Attention of every sequence over its own pages, read in place.

    Shapes: query ``[B, H, T, Dk]``, pool ``[n_slots, slot_elements]``, tables ``[B, n_pages]``
    (slot of each page from position 0), a start per sequence; result ``[B, H, T, Dv]``.
    """
    check_paged(query, pool, tables, starts, layout, layer)
    return _launch(
        query,
        pool.view(-1)[layout.k_offset(layer) :],
        pool.view(-1)[layout.v_offset(layer) :],
        tables.to(torch.int32).contiguous(),
        starts,
        spec,
        sinks,
        head_pages=1,
        page_tokens=layout.page_tokens,
        strides=(layout.slot_elements, layout.slot_elements),
        kv_heads=layout.kv_heads,
        v_dim=layout.v_dim,
    )


def _launch(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    tables: torch.Tensor,
    starts: Sequence[int],
    spec: AttentionSpec,
    sinks: torch.Tensor | None,
    *,
    head_pages: int,
    page_tokens: int,
    strides: tuple[int, int],
    kv_heads: int,
    v_dim: int,
) -> torch.Tensor:
    n_slots, n_heads, n_tokens, k_dim = query.shape
    repeat = n_heads // kv_heads
    tile = attention_tile(k_dim, v_dim, query.element_size())
    if page_tokens % tile.keys:
        raise ValueError(f"pages of {page_tokens} tokens: not whole tiles of {tile.keys} keys")
    members = triton.next_power_of_2(repeat)
    positions = max(1, tile.rows // members)
    out = query.new_empty(n_slots, n_heads, n_tokens, v_dim, dtype=store_dtype(query.dtype))
    n_tiles = max((start + n_tokens - 1) // positions - start // positions + 1 for start in starts)
    attention_kernel[(n_tiles, kv_heads, n_slots)](
        aligned(query),
        keys,
        values,
        out,
        tables,
        torch.tensor(list(starts), dtype=torch.int32, device=query.device),
        query if sinks is None else sinks.float().contiguous(),
        n_tokens,
        tables.shape[1],
        head_pages,
        float(spec.scale),
        float(spec.softcap or 0.0),
        HEADS=n_heads,
        REPEAT=repeat,
        K_DIM=k_dim,
        V_DIM=v_dim,
        PAGE_TOKENS=page_tokens,
        K_STRIDE=strides[0],
        V_STRIDE=strides[1],
        WINDOW=spec.window or 0,
        CAPPED=spec.softcap is not None,
        HAS_SINKS=sinks is not None,
        POSITIONS=positions,
        MEMBERS=members,
        BLOCK_KEYS=tile.keys,
        BLOCK_K=max(16, triton.next_power_of_2(k_dim)),
        BLOCK_V=max(16, triton.next_power_of_2(v_dim)),
        LOG2E=LOG2_E,
        WIDEN=is_widened(query.dtype),
        num_warps=tile.warps,
        num_stages=tile.stages,
        enable_fp_fusion=False,
    )
    return out.to(query.dtype)


@triton.jit(
    do_not_specialize=["n_tokens", "n_pages", "head_pages"],
    do_not_specialize_on_alignment=["sinks_ptr", "tables_ptr", "starts_ptr"],
)
def attention_kernel(
    query_ptr,
    keys_ptr,
    values_ptr,
    out_ptr,
    tables_ptr,
    starts_ptr,
    sinks_ptr,
    n_tokens,
    n_pages,
    head_pages,
    scale,
    softcap,
    HEADS: tl.constexpr,
    REPEAT: tl.constexpr,
    K_DIM: tl.constexpr,
    V_DIM: tl.constexpr,
    PAGE_TOKENS: tl.constexpr,
    K_STRIDE: tl.constexpr,
    V_STRIDE: tl.constexpr,
    WINDOW: tl.constexpr,
    CAPPED: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    POSITIONS: tl.constexpr,
    MEMBERS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_V: tl.constexpr,
    LOG2E: tl.constexpr,
    WIDEN: tl.constexpr,
):
    """Program (t, g, b): the t-th tile of POSITIONS positions of sequence b, key head g.

    query ``[B, HEADS, T, K_DIM]``, out ``[B, HEADS, T, V_DIM]``, tables ``[B, n_pages]``. A key
    head of a page has PAGE_TOKENS rows; heads lie head_pages of those apart, pages K_STRIDE.
    """
    slot = tl.program_id(2).to(tl.int64)
    group = tl.program_id(1).to(tl.int64)
    start = tl.load(starts_ptr + slot)
    end = start + n_tokens
    first = (start // POSITIONS + tl.program_id(0)) * POSITIONS
    if first >= end:
        return
    row = tl.arange(0, MEMBERS * POSITIONS)
    member = row // POSITIONS
    position = first + row % POSITIONS
    head = group * REPEAT + member
    row_ok = (member < REPEAT) & (position >= start) & (position < end)
    place = (slot * HEADS + head) * n_tokens + position - start
    dim_k = tl.arange(0, BLOCK_K)
    dim_v = tl.arange(0, BLOCK_V)
    query = tl.load(
        query_ptr + place[:, None] * K_DIM + dim_k[None, :],
        mask=row_ok[:, None] & (dim_k < K_DIM)[None, :],
        other=0.0,
    )
    top = tl.full((MEMBERS * POSITIONS,), float("-inf"), tl.float32)
    total = tl.zeros((MEMBERS * POSITIONS,), tl.float32)
    if HAS_SINKS:
        sink = tl.load(sinks_ptr + head, mask=member < REPEAT, other=0.0).to(tl.float32)
        top = sink * LOG2E
        total += 1.0
    acc = tl.zeros((MEMBERS * POSITIONS, BLOCK_V), tl.float32)
    low = 0
    if WINDOW > 0:
        low = tl.maximum(first - WINDOW + 1, 0) // BLOCK_KEYS
    high = tl.cdiv(first + POSITIONS, BLOCK_KEYS)
    for block in range(low, high):
        token = block * BLOCK_KEYS + tl.arange(0, BLOCK_KEYS)
        page_index = block * BLOCK_KEYS // PAGE_TOKENS
        page = tl.load(
            tables_ptr + slot * n_pages + page_index, mask=page_index < n_pages, other=0
        ).to(tl.int64)
        inside = group * head_pages * PAGE_TOKENS + token % PAGE_TOKENS
        token_ok = token < end
        keys = tl.load(
            keys_ptr + page * K_STRIDE + inside[None, :] * K_DIM + dim_k[:, None],
            mask=token_ok[None, :] & (dim_k < K_DIM)[:, None],
            other=0.0,
        )
        values = tl.load(
            values_ptr + page * V_STRIDE + inside[:, None] * V_DIM + dim_v[None, :],
            mask=token_ok[:, None] & (dim_v < V_DIM)[None, :],
            other=0.0,
        )
        if WIDEN:
            query = query.to(tl.float32)
            keys = keys.to(tl.float32)
            values = values.to(tl.float32)
        scores = tl.dot(query, keys, input_precision="ieee") * scale
        if CAPPED:
            shrunk = tl.exp(-2.0 * tl.abs(scores / softcap))
            bent = (1.0 - shrunk) / (1.0 + shrunk) * softcap
            scores = tl.where(scores < 0.0, -bent, bent)
        seen = token[None, :] <= position[:, None]
        if WINDOW > 0:
            seen = seen & (token[None, :] > position[:, None] - WINDOW)
        scores = tl.where(seen, scores * LOG2E, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))
        safe_top = tl.where(new_top == float("-inf"), 0.0, new_top)
        weights = tl.exp2(scores - safe_top[:, None])
        kept = tl.exp2(top - safe_top)
        total = total * kept + tl.sum(weights, 1)
        acc = acc * kept[:, None]
        acc = tl.dot(weights.to(values.dtype), values, acc, input_precision="ieee")
        top = new_top
    out = acc / total[:, None]
    out = tl.where(out == 0.0, 0.0, out)
    tl.store(
        out_ptr + place[:, None] * V_DIM + dim_v[None, :],
        out,
        mask=row_ok[:, None] & (dim_v < V_DIM)[None, :],
    )
