"""Mixture-of-experts layers in the invariant reference.

Which tokens meet in an expert depends on the whole batch; what each gets out of it must not. So
every expert computes its tokens by ``bmm`` or ``baddbmm``, in row tiles of one fixed size, and a
token adds up its experts in the order in which the router ranked them.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch

from kvg_kernels.alignment import aligned
from kvg_kernels.bmm import baddbmm, bmm

if TYPE_CHECKING:
    from collections.abc import Callable

    from transformers import PreTrainedModel

EXPERTS_NAME = "kvg_invariant"


def experts_of_tokens(
    module: Any,  # noqa: ANN401  an experts module of transformers, of any architecture
    hidden: torch.Tensor,
    top_index: torch.Tensor,
    top_weights: torch.Tensor,
    own_operators: Callable[[], AbstractContextManager[None]],
) -> torch.Tensor:
    """What the experts give each token, as the transformers experts interface calls it.

    Shapes: hidden ``[n, d]``, top_index and top_weights ``[n, k]``; result ``[n, d]``.
    """
    n_tokens, n_ranks = top_index.shape
    with own_operators():
        out = hidden.new_zeros(n_ranks, n_tokens, hidden.shape[-1])
        used = [int(expert) for expert in top_index.unique()]
    for expert in used:
        with own_operators():
            rank, token = (top_index.t() == expert).nonzero(as_tuple=True)
            rows = aligned(hidden[token])
            inner = _project(module, "gate_up_proj" if module.has_gate else "up_proj", expert, rows)
        inner = module._apply_gate(inner) if module.has_gate else module.act_fn(inner)
        with own_operators():
            inner = _project(module, "down_proj", expert, inner)
        if getattr(module, "has_post_expert_norm", False):
            inner = module.post_expert_norm(inner)
        with own_operators():
            out[rank, token] = inner * top_weights[token, rank].unsqueeze(-1).to(inner.dtype)
    with own_operators():
        total = torch.zeros(out.shape[1:], dtype=torch.float32, device=out.device)
        for part in out:
            total += part.float()
        return total.to(hidden.dtype)


def _project(
    module: Any,  # noqa: ANN401  as above
    name: str,
    expert: int,
    rows: torch.Tensor,
) -> torch.Tensor:
    """One product of one expert: rows ``[n, n_in]`` to ``[n, n_out]``."""
    weight = getattr(module, name)[expert].unsqueeze(0)
    factor = weight if module.is_transposed else weight.mT
    if not module.has_bias:
        return bmm(rows.unsqueeze(0), factor)[0]
    bias = getattr(module, f"{name}_bias")[expert].view(1, 1, -1)
    return baddbmm(bias, rows.unsqueeze(0), factor)[0]


def use_invariant_experts(module: PreTrainedModel, name: str) -> None:
    """Let ``module`` compute its experts by the implementation ``name``, if it has any."""
    if type(module)._can_set_experts_implementation():
        module.set_experts_implementation(name)
