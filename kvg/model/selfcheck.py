"""The self-check: which tiles agree on this machine, and that the whole model ignores the rest.

Nothing about a machine is assumed. Tile sizes are compared bit for bit with one that is safe, on
the model's own shapes, with one thread and with all, on inputs that cancel (``cancelling``): a tile
that differs is not used. Then the whole model runs over a few tokens in every way that must not
matter.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from kvg.digest import shake256
from kvg.errors import Incompatible
from kvg.model.cancelling import attention_inputs, linear_inputs
from kvg.model.dtypes import TORCH_DTYPES
from kvg.model.invariant import AttentionShape, TileMenu
from kvg.model.probe import (
    LinearShape,
    linear_shapes,
    made_input,
    one_thread,
    same_bits,
)
from kvg_kernels.attention import BLOCK_TOKENS, attention, rows_per_tile, tile_menu
from kvg_kernels.linear import PACKED_TILES, SMALL_TILE, TILES, can_pack, pack, packed_linear

if TYPE_CHECKING:
    from kvg.model.loader import LoadedModel
    from kvg.model.session import Session

CHECK_FLOPS = 2.5e9
"""A row tile is tried on a layer only where one call costs less than this; others are not used."""
CHECK_ROWS = 64
BIG_LAYER = 4_000_000
"""Weights from which a layer is checked on as many rows as the safe tile has."""
CHECK_BLOCKS = 3
"""Key blocks of the attention check: more than the kernel takes at once."""
CHECK_TOKENS = 20
HINT = "use --reference scheduled on this machine"


def prove_tiles(model: LoadedModel) -> TileMenu:
    """The tiles that agree bit for bit on this machine, on the shapes of ``model``.

    Raises ``Incompatible``, naming the operator, when even the safe tile depends on the threads.
    """
    layers = linear_shapes(model)
    return TileMenu(
        linear={(s.n_in, s.n_out): _linear_tiles(model, s) for s in layers},
        attention={shape: _attention_tiles(model, shape) for shape in model.shapes},
        packed={(s.n_in, s.n_out): tiles for s in layers if (tiles := _packed_tiles(model, s))},
    )


def is_still_true(model: LoadedModel, menu: TileMenu) -> bool:
    """Whether the tiles of one shape, drawn by chance, are proved once more."""
    linear, attention = linear_shapes(model), model.shapes
    drawn = secrets.randbelow(len(linear) + len(attention))
    if drawn < len(linear):
        shape = linear[drawn]
        key = (shape.n_in, shape.n_out)
        held, found = menu.linear[key], _linear_tiles(model, shape)
        if not set(menu.packed.get(key, ())) <= set(_packed_tiles(model, shape)):
            return False
    else:
        seen = attention[drawn - len(linear)]
        held, found = menu.attention[seen], _attention_tiles(model, seen)
    return set(held) <= set(found)


def _linear_tiles(model: LoadedModel, shape: LinearShape) -> tuple[int, ...]:
    dtype = TORCH_DTYPES[model.dtype]
    tried = [t for t in TILES if 2.0 * t * shape.n_in * shape.n_out <= CHECK_FLOPS]
    n_rows = SMALL_TILE if shape.n_in * shape.n_out >= BIG_LAYER else CHECK_ROWS
    x, weight = linear_inputs(shape.n_in, shape.n_out, max([n_rows, *tried]), dtype)

    def rows(tile: int) -> torch.Tensor:
        parts = range(0, max(n_rows, tile), tile)
        whole = torch.cat([functional.linear(x[a : a + tile], weight) for a in parts])
        return whole[:n_rows]

    what = f"linear {shape.n_in} to {shape.n_out} in {model.dtype}"
    return _agreeing(rows, tried, SMALL_TILE, what)


def _packed_tiles(model: LoadedModel, shape: LinearShape) -> tuple[int, ...]:
    """Numbers of rows for which a weight laid out beforehand gives the bits of the plain one."""
    dtype = TORCH_DTYPES[model.dtype]
    if not can_pack(dtype, model.device):
        return ()
    x, weight = linear_inputs(shape.n_in, shape.n_out, PACKED_TILES[0], dtype)
    plain = torch.cat([functional.linear(part, weight) for part in x.split(SMALL_TILE)])
    try:
        packed = pack(weight)
    except RuntimeError:
        return ()

    def agrees(tile: int) -> bool:
        found = [packed_linear(part, packed, None, (tile,)) for part in x.split(tile)]
        return same_bits(torch.cat(found), plain)

    with one_thread():
        alone = [tile for tile in PACKED_TILES if agrees(tile)]
    return tuple(tile for tile in alone if agrees(tile))


def _attention_tiles(model: LoadedModel, shape: AttentionShape) -> tuple[int, ...]:
    dtype = TORCH_DTYPES[model.dtype]
    start = (CHECK_BLOCKS - 1) * BLOCK_TOKENS
    inputs = attention_inputs(shape, dtype, n_tokens=BLOCK_TOKENS, n_blocks=CHECK_BLOCKS)
    heads = shape.kv_heads * shape.repeat
    sinks = made_input("sinks", (heads,), dtype) if shape.has_sinks else None

    def together(tile: int) -> torch.Tensor:
        return torch.cat(
            [
                attention(query, keys, values, start, shape.spec, sinks=sinks, tiles=(tile,))
                for query, keys, values in inputs
            ],
            1,
        )

    def rows(tile: int) -> torch.Tensor:
        """All tiles of a block in one call but the last, which gets a call of its own."""
        whole = together(tile)
        first = start + BLOCK_TOKENS - tile
        for number, (query, keys, values) in enumerate(inputs, 1):
            end = number * BLOCK_TOKENS
            whole[:, end - tile : end] = attention(
                query[:, -tile:], keys, values, first, shape.spec, sinks=sinks, tiles=(tile,)
            )
        return whole

    reach = f"window {shape.spec.window}" if shape.spec.window else "no window"
    what = f"attention of {heads} heads of {shape.k_dim}, {reach}, in {model.dtype}"
    safe = rows_per_tile(shape.repeat)
    if not same_bits(together(safe), rows(safe)):
        raise Incompatible(f"self-check: {what} depends on how its queries are split", hint=HINT)
    return _agreeing(rows, tile_menu(shape.repeat), safe, what)


def _agreeing(
    rows: Callable[[int], torch.Tensor], tried: list[int] | tuple[int, ...], safe: int, what: str
) -> tuple[int, ...]:
    """Those of ``tried`` that give the bits of ``safe``, with one thread and with all."""
    base = rows(safe)
    with one_thread():
        if not same_bits(rows(safe), base):
            raise Incompatible(f"self-check: {what} depends on the number of threads", hint=HINT)
        alone = [tile for tile in tried if tile == safe or same_bits(rows(tile), base)]
    found = [tile for tile in alone if tile == safe or same_bits(rows(tile), base)]
    return tuple(found) or (safe,)


def prove_splits(session: Session) -> None:
    """Raise ``Incompatible`` unless the whole model ignores splits, batches and threads.

    Runs a few tokens in one pass, in pieces, token by token, beside another text, and with one
    thread.
    """
    noise = shake256(b"kvg.self-check/1", 8 * CHECK_TOKENS)
    words = [int.from_bytes(noise[i : i + 4], "little") for i in range(0, len(noise), 4)]
    ids = [word % session.model.vocabulary for word in words[:CHECK_TOKENS]]
    others = [word % session.model.vocabulary for word in words[CHECK_TOKENS:]]
    last = CHECK_TOKENS - 1
    whole = session.run(session.slot(), ids, [last])[0]
    pieces = session.slot()
    session.run(pieces, ids[:8], [])
    session.run(pieces, ids[8:-1], [])
    first, second = session.slot(), session.slot()
    batch = session.run_batch([first, second], [ids, others[:12]], [last])[0, 0]
    with one_thread():
        alone = session.run(session.slot(), ids, [last])[0]
    found = {
        "how a text is split": session.run(pieces, ids[-1:], [0])[0],
        "what else is in the batch": batch,
        "the number of threads": alone,
    }
    for what, logits in found.items():
        if not same_bits(whole, logits):
            raise Incompatible(
                f"self-check: the logits of {type(session.model.module).__name__} depend on {what}",
                hint="use --reference scheduled for this model",
            )
