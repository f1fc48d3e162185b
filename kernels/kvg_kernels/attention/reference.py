"""The definition of ``attention``, one query at a time, in the dtype of its inputs or float64."""

from __future__ import annotations

import torch

from kvg_kernels.attention.spec import AttentionSpec


def attention_reference(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    start: int,
    spec: AttentionSpec,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention of queries at positions ``start``, ``start + 1``, … over ``keys`` from position 0.

    Shapes: query ``[H, T, Dk]``, keys ``[G, L, Dk]``, values ``[G, L, Dv]`` with G dividing H and
    L at least ``start + T``; sinks ``[H]`` or None; result ``[H, T, Dv]``.
    """
    n_heads, n_tokens, _ = query.shape
    repeat = n_heads // keys.shape[0]
    out = query.new_empty(n_heads, n_tokens, values.shape[-1])
    for i in range(n_tokens):
        end = start + i + 1
        begin = 0 if spec.window is None else max(0, end - spec.window)
        k = keys[:, begin:end].repeat_interleave(repeat, 0)
        v = values[:, begin:end].repeat_interleave(repeat, 0)
        scores = (k @ query[:, i].unsqueeze(-1)).squeeze(-1) * spec.scale
        if spec.softcap is not None:
            scores = torch.tanh(scores / spec.softcap) * spec.softcap
        if sinks is not None:
            scores = torch.cat([scores, sinks.to(scores.dtype).unsqueeze(-1)], -1)
        weights = torch.softmax(scores, -1)[:, : end - begin]
        out[:, i] = (weights.unsqueeze(1) @ v).squeeze(1)
    return out
