"""Which tiles of each operator agree on this machine.

Nothing about a machine is assumed. Tile sizes are compared bit for bit with one that is safe, on
the model's own shapes, with one thread and with all, on inputs that cancel (``cancelling``): a tile
that differs is not used. Every operator is given inputs that lie across the lines of the cache, and
has to give the bits of those that do not.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import torch
from torch.nn import functional

from kvg.errors import Incompatible
from kvg.model.cancelling import (
    attention_inputs,
    bias_input,
    expert_inputs,
    linear_inputs,
    windowed_inputs,
)
from kvg.model.dtypes import TORCH_DTYPES
from kvg.model.invariant import AttentionShape, TileMenu
from kvg.model.made import made_input
from kvg.model.probe import (
    ELEMENTWISE,
    ExpertShape,
    LinearShape,
    expert_shapes,
    linear_shapes,
    one_thread,
    same_bits,
)
from kvg_kernels.alignment import ALIGNMENT_BYTES
from kvg_kernels.attention import BLOCK_TOKENS, attention, rows_per_tile, tile_menu
from kvg_kernels.bmm import baddbmm, bmm
from kvg_kernels.linear import (
    PACKED_TILES,
    SMALL_TILE,
    TILES,
    can_pack,
    linear,
    pack,
    packed_linear,
)
from kvg_kernels.pointwise import pointwise

if TYPE_CHECKING:
    from kvg.model.loader import LoadedModel

CHECK_FLOPS = 2.5e9
"""A row tile is tried on a layer only where one call costs less than this; others are not used."""
CHECK_BLOCKS = 3
"""Key blocks of the attention check: more than the kernel takes at once."""
FAR_TOKENS = 8192
"""Tiles are compared once more at the end of so many keys, or of all that the model can see."""
MOVED_WEIGHTS = 4_000_000
"""Of a larger weight only so many numbers are tried elsewhere in memory: moving it takes long."""
STRETCH = 32
"""Tiles of fewer positions are tried on so many at each end of a block, not on all of it."""
SHARED_LENGTHS = (20_001, 40_001)
"""Elements of which some kernels, and of which all, have several threads take their share."""
CHECKED: Final[tuple[tuple[str, Callable[[torch.Tensor], torch.Tensor]], ...]] = (
    *ELEMENTWISE,
    ("gelu (tanh)", partial(functional.gelu, approximate="tanh")),
)
SHIFTS = (8, 32)
"""Bytes past a line of the cache at which the inputs of an operator are tried."""
HINT = "use --reference scheduled on this machine"


def prove_tiles(model: LoadedModel) -> TileMenu:
    """The tiles that agree bit for bit on this machine, on the shapes of ``model``.

    Raises ``Incompatible``, naming the operator, when even the safe tile depends on the threads or
    on where its inputs lie.
    """
    for shape in expert_shapes(model):
        _check_expert(model, shape)
    _check_elementwise(model)
    layers = linear_shapes(model)
    return TileMenu(
        linear={shape.key: _linear_tiles(model, shape) for shape in layers},
        attention={shape: _attention_tiles(model, shape) for shape in model.shapes},
        packed={s.key: tiles for s in layers if (tiles := _packed_tiles(model, s))},
    )


def is_still_true(model: LoadedModel, menu: TileMenu) -> bool:
    """Whether the tiles of one shape, drawn by chance, are proved once more.

    Raises ``Incompatible`` as ``prove_tiles``.
    """
    layers, attends = linear_shapes(model), model.shapes
    drawn = secrets.randbelow(len(layers) + len(attends))
    if drawn < len(layers):
        shape = layers[drawn]
        held, found = menu.linear[shape.key], _linear_tiles(model, shape)
        if not set(menu.packed.get(shape.key, ())) <= set(_packed_tiles(model, shape)):
            return False
    else:
        seen = attends[drawn - len(layers)]
        held, found = menu.attention[seen], _attention_tiles(model, seen)
    return set(held) <= set(found)


def shifted(tensor: torch.Tensor, n_bytes: int) -> torch.Tensor:
    """The same numbers, the first of them ``n_bytes`` past a line of the cache."""
    size = tensor.element_size()
    flat = tensor.new_empty(tensor.numel() + 2 * ALIGNMENT_BYTES // size)
    skip = (-flat.data_ptr() % ALIGNMENT_BYTES + n_bytes) // size
    view = flat[skip : skip + tensor.numel()].view(tensor.shape)
    return view.copy_(tensor)


def _linear_tiles(model: LoadedModel, shape: LinearShape) -> tuple[int, ...]:
    """Tiles up to 16 rows are tried on the first and last of 16 rows, larger ones on repeats."""
    dtype = TORCH_DTYPES[model.dtype]
    tried = [t for t in TILES if 2.0 * t * shape.n_in * shape.n_out <= CHECK_FLOPS]
    x, weight = linear_inputs(shape.n_in, shape.n_out, SMALL_TILE, dtype)
    bias = bias_input(shape.n_out, dtype) if shape.has_bias else None

    def product(rows: torch.Tensor, tiles: tuple[int, ...] = (SMALL_TILE,)) -> torch.Tensor:
        return linear(rows, weight, bias, tiles=tiles)

    def agrees(tile: int, base: torch.Tensor) -> bool:
        if tile <= SMALL_TILE:
            ends = (slice(tile), slice(-tile, None))
            return all(same_bits(product(x[end], (tile,)), base[end]) for end in ends)
        out = product(x.repeat(tile // SMALL_TILE + 1, 1), (tile, SMALL_TILE))
        parts = out.view(-1, SMALL_TILE, shape.n_out)
        return same_bits(parts, base.expand_as(parts))

    def elsewhere(n_bytes: int) -> Iterator[bool]:
        moved, lain = shifted(x, n_bytes), shifted(some, n_bytes)
        added = None if bias is None else shifted(bias[:n_moved], n_bytes)
        yield same_bits(linear(moved, lain, added, tiles=(SMALL_TILE,)), lying)

    n_moved = max(1, MOVED_WEIGHTS // shape.n_in)
    some = weight[:n_moved]
    lying = linear(x, some, None if bias is None else bias[:n_moved], tiles=(SMALL_TILE,))
    what = f"linear {shape.n_in} to {shape.n_out} in {model.dtype}"
    _check_places(elsewhere, what)
    return _agreeing(product(x), lambda: product(x), agrees, tried, SMALL_TILE, what)


def _packed_tiles(model: LoadedModel, shape: LinearShape) -> tuple[int, ...]:
    """Numbers of rows for which a weight laid out beforehand gives the bits of the plain one."""
    dtype = TORCH_DTYPES[model.dtype]
    if not can_pack(dtype, model.device):
        return ()
    x, weight = linear_inputs(shape.n_in, shape.n_out, SMALL_TILE, dtype)
    bias = bias_input(shape.n_out, dtype) if shape.has_bias else None
    plain = linear(x, weight, bias, tiles=(SMALL_TILE,))
    try:
        packed = pack(weight)
    except RuntimeError:
        return ()

    def agrees(tile: int) -> bool:
        """On the first and last of 16 rows; more rows repeat them."""
        more = max(1, tile // SMALL_TILE)
        rows, expected = x.repeat(more, 1), plain.repeat(more, 1)
        return all(
            same_bits(packed_linear(part, packed, bias, (tile,)), there)
            for part, there in (
                (rows[:tile], expected[:tile]),
                (shifted(rows[-tile:], SHIFTS[0]), expected[-tile:]),
            )
        )

    with one_thread():
        alone = [tile for tile in PACKED_TILES if agrees(tile)]
    return tuple(tile for tile in alone if agrees(tile))


class _Attending:
    """One attention layer over inputs that cancel: its queries are the last before ``n_blocks``
    blocks end."""

    def __init__(
        self, model: LoadedModel, shape: AttentionShape, *, n_tokens: int, n_blocks: int
    ) -> None:
        dtype, heads = TORCH_DTYPES[model.dtype], shape.kv_heads * shape.repeat
        self._spec = shape.spec
        self._sinks = made_input("sinks", (heads,), dtype) if shape.has_sinks else None
        self.last = n_blocks * BLOCK_TOKENS
        self.first = self.last - n_tokens
        is_whole = shape.spec.window is not None and shape.spec.window <= self.first + 1
        made = windowed_inputs if is_whole else attention_inputs
        self._inputs = made(shape, dtype, n_tokens=n_tokens, n_blocks=n_blocks)

    def queries(self, tile: int, first: int, last: int) -> torch.Tensor:
        """``[inputs, H, T, Dv]``: what positions [first, last) of every input give in a call."""
        return self._called(tile, first, last, lambda tensor: tensor)

    def elsewhere(self, tile: int, n_bytes: int) -> torch.Tensor:
        """The last ``tile`` positions, everything ``n_bytes`` past a line of the cache."""
        return self._called(tile, self.last - tile, self.last, lambda t: shifted(t, n_bytes))

    def _called(
        self, tile: int, first: int, last: int, lay: Callable[[torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        sinks = None if self._sinks is None else lay(self._sinks)
        part = slice(first - self.first, last - self.first)
        return torch.stack(
            [
                attention(
                    lay(query[:, part]),
                    lay(keys),
                    lay(values),
                    first,
                    self._spec,
                    sinks=sinks,
                    tiles=(tile,),
                )
                for query, keys, values in self._inputs
            ]
        )


def _attention_tiles(model: LoadedModel, shape: AttentionShape) -> tuple[int, ...]:
    attending = _Attending(model, shape, n_tokens=BLOCK_TOKENS, n_blocks=CHECK_BLOCKS)
    first, last = attending.first, attending.last
    safe = rows_per_tile(shape.repeat)

    def whole(tile: int) -> torch.Tensor:
        """The whole block, all its tiles in one call."""
        return attending.queries(tile, first, last)

    def agrees(tile: int, base: torch.Tensor) -> bool:
        """Also the last tile in a call of its own, and a part of one, as in decoding."""
        spans = [(last - tile, last), (last - tile // 2 - 1, last - tile // 2)]
        if tile < STRETCH:
            spans += [(first, first + STRETCH), (last - STRETCH, last)]
        elif tile != safe:
            spans.append((first, last))
        return all(
            same_bits(attending.queries(tile, a, b), base[:, :, a - first : b - first])
            for a, b in spans
        )

    def elsewhere(n_bytes: int) -> Iterator[bool]:
        yield same_bits(attending.elsewhere(safe, n_bytes), end)

    reach = f"window {shape.spec.window}" if shape.spec.window else "no window"
    heads = shape.kv_heads * shape.repeat
    what = f"attention of {heads} heads of {shape.k_dim}, {reach}, in {model.dtype}"
    base = whole(safe)
    if not agrees(safe, base):
        raise Incompatible(f"self-check: {what} depends on how its queries are split", hint=HINT)
    end = base[:, :, -safe:]
    _check_places(elsewhere, what)
    found = _agreeing(base, lambda: whole(safe), agrees, tile_menu(shape.repeat), safe, what)
    return _agreeing_far(model, shape, found, what)


def _agreeing_far(
    model: LoadedModel, shape: AttentionShape, tiles: tuple[int, ...], what: str
) -> tuple[int, ...]:
    """Those of ``tiles`` that agree after many keys too, on the last positions of a block.

    Only where products are over all keys at once, and so may be cut otherwise when there are more:
    with a soft cap or sinks, and for heads whose values are of another size. Else the library takes
    fewer keys at a time than were looked at already.
    """
    if shape.spec.softcap is None and not shape.has_sinks and shape.k_dim == shape.v_dim:
        return tiles
    reach = min(model.window, FAR_TOKENS, (shape.spec.window or FAR_TOKENS) + BLOCK_TOKENS)
    n_blocks = -(-reach // BLOCK_TOKENS)
    if n_blocks <= CHECK_BLOCKS:
        return tiles
    attending = _Attending(model, shape, n_tokens=STRETCH, n_blocks=n_blocks)

    def ends(tile: int, n_tokens: int) -> torch.Tensor:
        return attending.queries(tile, attending.last - n_tokens, attending.last)

    def agrees(tile: int, base: torch.Tensor) -> bool:
        """Beside other tiles as far as they fit, and alone."""
        return same_bits(ends(tile, STRETCH), base) and same_bits(ends(tile, 1), base[:, :, -1:])

    safe = rows_per_tile(shape.repeat)
    with one_thread():
        base = ends(safe, STRETCH)
        alone = [tile for tile in tiles if agrees(tile, base)]
    found = tuple(tile for tile in alone if agrees(tile, base))
    if safe not in found:
        raise Incompatible(
            f"self-check: {what} depends, after {attending.last:,} keys, on how its queries are "
            "split or on the number of threads",
            hint=HINT,
        )
    return found


def _check_expert(model: LoadedModel, shape: ExpertShape) -> None:
    """Raise ``Incompatible`` unless the products of experts ignore rows, threads and places."""
    x, factor, bias = expert_inputs(shape, SMALL_TILE, TORCH_DTYPES[model.dtype])

    def product(x: torch.Tensor, factor: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return bmm(x, factor) if bias is None else baddbmm(bias, x, factor)

    def elsewhere(n_bytes: int) -> Iterator[bool]:
        lying = factor if shape.is_transposed else factor.mT
        moved = shifted(lying, n_bytes)
        more = shifted(bias, n_bytes) if bias is not None else None
        there = moved if shape.is_transposed else moved.mT
        yield same_bits(product(shifted(x, n_bytes), there, more), base)

    what = f"product {shape.n_in} to {shape.n_out} of experts in {model.dtype}"
    base = product(x, factor, bias)
    for row in (0, SMALL_TILE // 2):
        if not same_bits(product(x[:, row : row + 1], factor, bias), base[:, row : row + 1]):
            raise Incompatible(f"self-check: {what} depends on its other rows", hint=HINT)
    with one_thread():
        if not same_bits(product(x, factor, bias), base):
            raise Incompatible(f"self-check: {what} depends on the number of threads", hint=HINT)
    _check_places(elsewhere, what)


def _check_elementwise(model: LoadedModel) -> None:
    """Raise ``Incompatible`` unless element-wise functions ignore where their elements lie, also
    in tensors that threads share, by whichever rule."""
    for kind in sorted({"F32", model.dtype}):
        x = made_input("elements", (1021,), TORCH_DTYPES[kind]) * 8
        many = x.repeat(1 + max(SHARED_LENGTHS) // len(x))
        for name, op in CHECKED:
            base = pointwise(op, x)
            expected = base.repeat(1 + max(SHARED_LENGTHS) // len(x))
            for n in SHARED_LENGTHS:
                if not same_bits(pointwise(op, many[:n]), expected[:n]):
                    raise Incompatible(
                        f"self-check: {name} in {kind} depends on how threads share its elements",
                        hint=HINT,
                    )

            def elsewhere(
                n_bytes: int,
                op: Callable[[torch.Tensor], torch.Tensor] = op,
                base: torch.Tensor = base,
                x: torch.Tensor = x,
            ) -> Iterator[bool]:
                yield same_bits(pointwise(op, shifted(x, n_bytes)), base)
                yield same_bits(pointwise(op, shifted(x[1:], n_bytes)), base[1:])

            _check_places(elsewhere, f"{name} in {kind}")


def _check_places(elsewhere: Callable[[int], Iterator[bool]], what: str) -> None:
    """Raise ``Incompatible`` unless inputs that lie elsewhere in memory give the same bits."""
    for n_bytes in SHIFTS:
        if not all(elsewhere(n_bytes)):
            raise Incompatible(
                f"self-check: {what} depends on where its inputs lie in memory", hint=HINT
            )


def _agreeing(
    base: torch.Tensor,
    again: Callable[[], torch.Tensor],
    agrees: Callable[[int, torch.Tensor], bool],
    tried: Sequence[int],
    safe: int,
    what: str,
) -> tuple[int, ...]:
    """Those of ``tried`` that agree with ``base``, what ``safe`` gives, with one thread and all.

    ``again`` computes it anew. Raises ``Incompatible`` where it depends on the number of threads.
    """
    with one_thread():
        if not same_bits(again(), base):
            raise Incompatible(f"self-check: {what} depends on the number of threads", hint=HINT)
        alone = [tile for tile in tried if tile == safe or agrees(tile, base)]
    found = [tile for tile in alone if tile == safe or agrees(tile, base)]
    return tuple(found) or (safe,)
