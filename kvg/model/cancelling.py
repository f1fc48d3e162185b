"""Inputs whose exact results are zero, so that what comes out is rounding and nothing else.

A sum in another order differs by about one part in 10^7, which a result in bf16 (three digits)
hides all but a few times in ten thousand. Where terms come in pairs that cancel, at places that
follow from a label, the exact sum is zero: every element of the result is the rounding of that one
order, and two orders that differ do so nearly everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kvg.digest import shake256
from kvg.model.made import LABEL, made_input
from kvg_kernels.alignment import aligned
from kvg_kernels.attention import BLOCK_TOKENS

if TYPE_CHECKING:
    from kvg.model.invariant import AttentionShape
    from kvg.model.probe import ExpertShape

REPEATED_ROWS = 256
"""Rows drawn of a weight; larger ones repeat them."""
PAIRED_KEYS = 16
"""Keys whose values cancel lie within so many positions."""
SPARSE = 4
"""One of so many runs of keys has values at all, so that few queries see a part of one only."""
SPREAD = (0, -18, -6, -12)
"""Powers of two by which values of a short window differ: sums of a few products that are of one
size lose nothing, and so hide their order."""
LOUD = {torch.bfloat16: 2.0**18, torch.float32: 2.0**18, torch.float16: 2.0**12}
"""Factor by which queries are scaled, exactly, so that rounding of the scores moves the weights."""

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Query ``[H, T, Dk]``, keys ``[G, L, Dk]`` and values ``[G, L, Dv]``."""


def linear_inputs(
    n_in: int, n_out: int, n_rows: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows ``[n_rows, n_in]`` and a weight ``[n_out, n_in]``: their exact product is zero."""
    drawn = min(n_out, REPEATED_ROWS)
    weight = _paired("weight", (drawn, n_in), dtype, sign=-1)
    whole = weight.repeat(-(-n_out // drawn), 1)[:n_out]
    return _paired("rows", (n_rows, n_in), dtype, sign=1), aligned(whole.contiguous())


def expert_inputs(
    shape: ExpertShape, n_rows: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Rows ``[1, n_rows, n_in]`` and a factor ``[1, n_in, n_out]`` that lies as the model's.

    Their exact product is zero. Also a bias ``[1, 1, n_out]`` where there is one.
    """
    x, weight = linear_inputs(shape.n_in, shape.n_out, n_rows, dtype)
    factor = aligned(weight.t()) if shape.is_transposed else weight.t()
    bias = bias_input(shape.n_out, dtype).view(1, 1, -1) if shape.has_bias else None
    return x.unsqueeze(0), factor.unsqueeze(0), bias


def bias_input(n_out: int, dtype: torch.dtype) -> torch.Tensor:
    """A bias ``[n_out]``, zero at every other place: there it hides no rounding."""
    bias = made_input("bias", (n_out,), dtype)
    bias[::2] = 0
    return bias


def attention_inputs(
    shape: AttentionShape, dtype: torch.dtype, *, n_tokens: int, n_blocks: int
) -> tuple[Inputs, Inputs]:
    """Inputs whose values cancel under equal weights, and inputs whose scores cancel."""
    queries, keys, values = _sizes(shape, n_tokens, n_blocks)
    runs = torch.arange(n_blocks * BLOCK_TOKENS) // PAIRED_KEYS % SPARSE == 1
    silent = (
        made_input("query", queries, dtype) * 4,
        _paired_runs("keys", keys, dtype, sign=1),
        aligned(_paired_runs("values", values, dtype, sign=-1) * runs.unsqueeze(-1)),
    )
    return silent, _loud(shape, dtype, n_tokens=n_tokens, n_blocks=n_blocks)


def windowed_inputs(
    shape: AttentionShape, dtype: torch.dtype, *, n_tokens: int, n_blocks: int
) -> tuple[Inputs, Inputs]:
    """``attention_inputs`` for a layer with a window that every query sees all of.

    Under equal weights the values of any window cancel, wherever it begins: they repeat after as
    many positions as it has. Of ``attention_inputs`` a short window sees a part of a run, whose sum
    is no rounding. A window of two positions has no order.
    """
    queries, keys, values = _sizes(shape, n_tokens, n_blocks)
    window = shape.spec.window or 1
    n_drawn = window - window // 2
    exponents = torch.tensor([SPREAD[i % len(SPREAD)] for i in range(n_drawn)])
    if window % 2:
        exponents[-1] = min(SPREAD)
    sizes = (2.0**exponents).to(dtype).unsqueeze(-1)
    silent = (
        made_input("query", queries, dtype) * 4,
        _paired_windows("keys", keys, window, sign=1, sizes=torch.ones_like(sizes)),
        _paired_windows("values", values, window, sign=-1, sizes=sizes),
    )
    return silent, _loud(shape, dtype, n_tokens=n_tokens, n_blocks=n_blocks)


def _sizes(
    shape: AttentionShape, n_tokens: int, n_blocks: int
) -> tuple[tuple[int, int, int], tuple[int, int, int], tuple[int, int, int]]:
    """Of queries, keys and values."""
    n_keys, groups = n_blocks * BLOCK_TOKENS, shape.kv_heads
    queries = (groups * shape.repeat, n_tokens, shape.k_dim)
    return queries, (groups, n_keys, shape.k_dim), (groups, n_keys, shape.v_dim)


def _loud(shape: AttentionShape, dtype: torch.dtype, *, n_tokens: int, n_blocks: int) -> Inputs:
    """Inputs whose scores cancel."""
    queries, keys, values = _sizes(shape, n_tokens, n_blocks)
    return (
        _paired("loud query", queries, dtype, sign=1) * LOUD[dtype],
        _paired("loud keys", keys, dtype, sign=-1),
        made_input("loud values", values, dtype),
    )


def _paired(label: str, shape: tuple[int, ...], dtype: torch.dtype, *, sign: int) -> torch.Tensor:
    """Each element of a row has a partner of the same size; an odd one out is zero, but where it
    is alone."""
    if shape[-1] == 1:
        return made_input(f"alone {label}", shape, dtype)
    half = made_input(f"paired {label}", (*shape[:-1], shape[-1] // 2), dtype)
    left = half.new_zeros(*shape[:-1], shape[-1] % 2)
    return aligned(torch.cat([half, sign * half, left], -1)[..., _order(shape[-1])].contiguous())


def _paired_runs(
    label: str, shape: tuple[int, int, int], dtype: torch.dtype, *, sign: int
) -> torch.Tensor:
    """Each position has a partner of the same size within its run of ``PAIRED_KEYS``."""
    groups, n_keys, dim = shape
    half = made_input(
        f"paired {label}", (groups, n_keys // PAIRED_KEYS, PAIRED_KEYS // 2, dim), dtype
    )
    whole = torch.cat([half, sign * half], 2)[:, :, _order(PAIRED_KEYS)]
    return aligned(whole.reshape(shape))


def _paired_windows(
    label: str, shape: tuple[int, int, int], window: int, *, sign: int, sizes: torch.Tensor
) -> torch.Tensor:
    """Each position has a partner of the same size among any ``window`` positions; an odd one none.

    ``sizes`` ``[n, 1]``: by what each pair is scaled, and the odd one.
    """
    groups, n_keys, dim = shape
    drawn = made_input(f"windowed {label}", (groups, len(sizes), dim), sizes.dtype) * sizes
    whole = torch.cat([drawn, sign * drawn[:, : window // 2]], 1)[:, _order(window)]
    return aligned(whole.repeat(1, -(-n_keys // window), 1)[:, :n_keys])


def _order(n: int) -> torch.Tensor:
    """One order of n things, the same everywhere."""
    noise = bytearray(shake256(f"{LABEL} order {n}".encode(), 4 * n))
    words = torch.frombuffer(noise, dtype=torch.int32)
    return torch.argsort(words, stable=True)
