"""``attention`` on a CPU: stock scaled-dot-product attention, called on shapes that position fixes.

A query tile holds consecutive absolute positions of one block of 256; the query heads that share
a key head lie in it as further rows, or beside it in the batch, so keys are never repeated in
memory. All tiles of a block see
the same keys: whole blocks, from the first that the window reaches to the block's own. So what a
row is computed from follows from its position alone, and so does the order in which it is summed.
Which sizes of tile give the same bits on the machine at hand is proved by the self-check: large
ones are for prefill, small ones for decoding. Equal tiles of one block go into one call as its
batch, which computes each on its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import torch
from torch.nn import functional

from kvg_kernels.alignment import aligned
from kvg_kernels.attention.spec import BLOCK_TOKENS, AttentionSpec
from kvg_kernels.pointwise import pointwise

TILE_ROWS = 32
TILE_MENU = (256, 64, 16, 4, 2, 1)
"""Positions per tile, largest first; each divides the block."""
LEAST_ROWS = 4
"""Rows of a call of stock attention: of fewer the library sums the products in another order."""
MaskCache: TypeAlias = dict[tuple[int, int, int, int, int], torch.Tensor]
"""Masks that the layers of one forward pass share: by first position, tiles, positions per tile,
heads per key and window. The line that is the mask of a whole block has no tiles and no heads."""


def rows_per_tile(repeat: int) -> int:
    """Positions per tile that other tiles are compared with: a power of two, for ``repeat`` query
    heads that share one key head."""
    return 1 << max(0, (TILE_ROWS // repeat).bit_length() - 1)


def tile_menu(repeat: int) -> tuple[int, ...]:
    """Every size of tile worth a look for ``repeat`` query heads per key head, largest first."""
    return tuple(sorted({*TILE_MENU, rows_per_tile(repeat)}, reverse=True))


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
    C a multiple of 256 that covers ``start + T``, the first element 64-byte aligned; sinks
    ``[H]`` or None; result ``[H, T, Dv]``. Keys past a query's own position are not seen, but must
    be finite. ``masks`` is a cache that the layers of one forward pass may share. ``tiles`` are the
    positions per tile that were proved equal here, largest first; by default one size alone.
    ``out``, of the result's shape and any strides, is where the result goes.
    """
    repeat = query.shape[0] // keys.shape[0]
    tiles = tiles or (rows_per_tile(repeat),)
    masks = masks if masks is not None else {}
    if out is None:
        out = query.new_empty(*query.shape[:2], values.shape[-1])
    for _, first, last in query_blocks(start, query.shape[1]):
        for a, b, tile in query_tiles(first, last, tiles):
            part = slice(a - start, b - start)
            if tile == BLOCK_TOKENS and _is_stock(spec, sinks):
                _block(query[:, part], keys, values, a, spec, masks, out[:, part])
            else:
                _tiles(query[:, part], keys, values, a, tile, spec, sinks, masks, out[:, part])
    return out


def query_blocks(start: int, n_tokens: int) -> Iterator[tuple[int, int, int]]:
    """Cut positions [start, start + n) at block boundaries: yields (block, first, last)."""
    first = start
    while first < start + n_tokens:
        block = first // BLOCK_TOKENS
        last = min(start + n_tokens, (block + 1) * BLOCK_TOKENS)
        yield block, first, last
        first = last


def query_tiles(first: int, last: int, tiles: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Cover positions [first, last) of one block: yields (a, b, tile), [a, b) in tiles of one size.

    Positions are taken from absolute multiples of a tile; whole tiles are taken as large as they
    come, and what is left at either side in the smallest that is not mostly padding.
    """
    while first < last:
        for tile in tiles:
            begin = first // tile * tile
            whole = (last - first) // tile * tile if begin == first else 0
            if whole:
                yield first, first + whole, tile
                first += whole
                break
            end = min(last, begin + tile)
            if tile == tiles[-1] or 2 * (end - first) > tile:
                yield first, end, tile
                first = end
                break


def _is_stock(spec: AttentionSpec, sinks: torch.Tensor | None) -> bool:
    """Whether stock attention has an argument for everything in ``spec``."""
    return spec.softcap is None and sinks is None


def _block(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    first: int,
    spec: AttentionSpec,
    masks: MaskCache,
    result: torch.Tensor,
) -> None:
    """Queries of one block, padded to all its positions, from the last to the first.

    Shapes: query ``[H, T, Dk]``, result ``[H, T, Dv]``, written to. The query heads of a key
    are a batch here, not rows: there is work enough for every thread without that. In falling order
    of positions what a row sees ends one column before what the row above it sees, so that one line
    of numbers, read from one place further on for each row, is the mask of the block: it stays in
    the nearest cache, where a mask with a line for each row would not.
    """
    n_heads, n_tokens, k_dim = query.shape
    groups = keys.shape[0]
    repeat = n_heads // groups
    block, lead = divmod(first, BLOCK_TOKENS)
    if n_tokens != BLOCK_TOKENS:
        padded = query.new_zeros(n_heads, BLOCK_TOKENS, k_dim)
        padded[:, lead : lead + n_tokens] = query
        query = padded
    low, high = spec.first_block(block) * BLOCK_TOKENS, (block + 1) * BLOCK_TOKENS
    key = (first - lead, 0, BLOCK_TOKENS, 0, spec.window or 0)
    if key not in masks:
        masks[key] = _mask_line(high - low, spec, query)
    out = functional.scaled_dot_product_attention(
        query.flip(1).unflatten(0, (groups, repeat)).transpose(0, 1),
        keys[:, low:high].unsqueeze(0).expand(repeat, -1, -1, -1),
        values[:, low:high].unsqueeze(0).expand(repeat, -1, -1, -1),
        attn_mask=masks[key].as_strided((1, 1, BLOCK_TOKENS, high - low), (0, 0, 1, 1)),
        scale=spec.scale,
    )
    rising = out.flip(2)[:, :, lead : lead + n_tokens]
    result.unflatten(0, (groups, repeat)).transpose(0, 1).copy_(rising)


def _mask_line(n_columns: int, spec: AttentionSpec, like: torch.Tensor) -> torch.Tensor:
    """Additive mask of a block's last position and, each from one place further on, of all others.

    Shape ``[n_columns + 255]``: 0 where seen, -inf where not.
    """
    line = torch.full((n_columns + BLOCK_TOKENS - 1,), -torch.inf, dtype=like.dtype)
    line[max(0, n_columns - (spec.window or n_columns)) : n_columns] = 0
    return line.to(like.device)


def _tiles(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    first: int,
    tile: int,
    spec: AttentionSpec,
    sinks: torch.Tensor | None,
    masks: MaskCache,
    result: torch.Tensor,
) -> None:
    """Queries of one block, padded to whole tiles of ``tile`` positions.

    Shapes: query ``[H, T, Dk]``, result ``[H, T, Dv]``, written to.
    """
    n_heads, n_tokens, k_dim = query.shape
    groups = keys.shape[0]
    repeat = n_heads // groups
    block = first // BLOCK_TOKENS
    lead = first % tile
    n_tiles = -(-(lead + n_tokens) // tile)
    rows = query.reshape(groups, repeat, n_tokens, k_dim)
    if n_tokens != n_tiles * tile:
        padded = query.new_zeros(groups, repeat, n_tiles * tile, k_dim)
        padded[:, :, lead : lead + n_tokens] = rows
        rows = padded
    rows = rows.view(groups, repeat, n_tiles, tile, k_dim).permute(2, 0, 1, 3, 4)
    rows = aligned(rows).view(n_tiles, groups, repeat * tile, k_dim)
    low, high = spec.first_block(block) * BLOCK_TOKENS, (block + 1) * BLOCK_TOKENS
    seen_keys, seen_values = keys[:, low:high], values[:, low:high]
    key = (first - lead, n_tiles, tile, repeat, spec.window or 0)
    if key not in masks:
        masks[key] = _filled(_mask(first - lead, n_tiles, tile, repeat, low, high, spec, query))
    n_rows = repeat * tile
    if _is_stock(spec, sinks):
        n_items = _items(n_tiles, groups)
        out = functional.scaled_dot_product_attention(
            _filled(rows).expand(n_items, -1, -1, -1),
            seen_keys.unsqueeze(0).expand(n_items, -1, -1, -1),
            seen_values.unsqueeze(0).expand(n_items, -1, -1, -1),
            attn_mask=masks[key],
            scale=spec.scale,
        )[:n_tiles, :, :n_rows]
    else:
        mask = masks[key][:, :, :n_rows]
        out = _in_float32(rows, seen_keys, seen_values, mask, spec, sinks, repeat)
    v_dim = values.shape[-1]
    out = out.view(n_tiles, groups, repeat, tile, v_dim).permute(1, 2, 0, 3, 4)
    if n_tokens == n_tiles * tile:
        result.unflatten(1, (n_tiles, tile)).unflatten(0, (groups, repeat)).copy_(out)
    else:
        flat = out.reshape(n_heads, n_tiles * tile, v_dim)
        result.copy_(flat[:, lead : lead + n_tokens])


def _filled(rows: torch.Tensor) -> torch.Tensor:
    """``rows`` ``[…, R, n]``, the last one repeated until there are ``LEAST_ROWS``."""
    n_missing = LEAST_ROWS - rows.shape[-2]
    if n_missing <= 0:
        return rows
    return torch.cat([rows, rows[..., -1:, :].expand(*rows.shape[:-2], n_missing, -1)], -2)


def _items(n_tiles: int, groups: int) -> int:
    """How many tiles a call has: a tile that would be alone in it is there twice.

    Several are shared out among the threads, each computed by one. Of one alone the products are
    shared out instead, and so cut otherwise.
    """
    return 2 if n_tiles * groups == 1 and torch.get_num_threads() > 1 else n_tiles


def _in_float32(
    rows: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor,
    spec: AttentionSpec,
    sinks: torch.Tensor | None,
    repeat: int,
) -> torch.Tensor:
    """What stock attention has no argument for: soft-capped scores and sinks, in fp32, by tile.

    Shapes: rows ``[n_tiles, G, R, Dk]``, keys ``[G, L, Dk]``, values ``[G, L, Dv]``, mask
    ``[n_tiles, 1, R, L]``, sinks ``[G * repeat]``; result ``[n_tiles, G, R, Dv]``.
    """
    out = []
    groups = keys.shape[0]
    n_items = max(groups, _items(1, groups))
    wide_keys, wide_values = keys.float().transpose(1, 2).contiguous(), values.float().contiguous()

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.bmm(a.expand(n_items, -1, -1), b.expand(n_items, -1, -1))[:groups]

    for tile, hidden in zip(rows, mask, strict=True):
        scores = product(tile.float(), wide_keys) * spec.scale
        if spec.softcap is not None:
            scores = pointwise(torch.tanh, scores / spec.softcap) * spec.softcap
        scores = scores + hidden.float()
        top = scores.amax(-1, keepdim=True)
        extra = None
        if sinks is not None:
            per_row = sinks.float().view(-1, repeat, 1).expand(-1, -1, tile.shape[1] // repeat)
            extra = per_row.reshape(tile.shape[0], tile.shape[1], 1)
            top = torch.maximum(top, extra)
        weights = pointwise(torch.exp, scores - top)
        total = weights.sum(-1, keepdim=True)
        if extra is not None:
            total = total + pointwise(torch.exp, extra - top)
        out.append(product(weights, wide_values) / total)
    return torch.stack(out).to(rows.dtype)


def _mask(
    first: int,
    n_tiles: int,
    tile: int,
    repeat: int,
    low: int,
    high: int,
    spec: AttentionSpec,
    like: torch.Tensor,
) -> torch.Tensor:
    """Additive mask ``[n_tiles, 1, repeat * tile, high - low]``: 0 where seen, -inf where not."""
    positions = first + torch.arange(n_tiles * tile, device=like.device)
    columns = torch.arange(low, high, device=like.device)
    hidden = columns > positions.unsqueeze(-1)
    if spec.window is not None:
        hidden |= columns <= positions.unsqueeze(-1) - spec.window
    mask = torch.zeros(hidden.shape, dtype=like.dtype, device=like.device)
    mask.masked_fill_(hidden, float("-inf"))
    mask = mask.view(n_tiles, 1, 1, tile, high - low).expand(-1, -1, repeat, -1, -1)
    return mask.reshape(n_tiles, 1, repeat * tile, high - low)
