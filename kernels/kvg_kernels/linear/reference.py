"""The definition of ``linear``: every tile has the same number of rows, padded with zeros."""

from __future__ import annotations

import torch
from torch.nn import functional


def linear_reference(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *, tile: int
) -> torch.Tensor:
    """``x @ weight.T + bias`` with every row computed inside a tile of exactly ``tile`` rows.

    Shapes: x ``[..., K]``, weight ``[N, K]``, bias ``[N]`` or None; result ``[..., N]``.
    """
    rows = x.reshape(-1, x.shape[-1])
    out = x.new_empty(rows.shape[0], weight.shape[0])
    for start in range(0, rows.shape[0], tile):
        n = min(tile, rows.shape[0] - start)
        padded = x.new_zeros(tile, x.shape[-1])
        padded[:n] = rows[start : start + n]
        out[start : start + n] = functional.linear(padded, weight, bias)[:n]
    return out.reshape(*x.shape[:-1], weight.shape[0])
