"""The probe: how this machine computes, as one digest.

Inputs come from SHAKE-256 of a label (u16 to float in [-1, 1) to the model's dtype), never from a
library's random generator, so two machines with equal probes give equal bits for equal operators.
Products run on inputs that cancel, where another order of summation shows in every dtype.
Everything has the model's own shapes: linear layers, experts, and attention with its windows, soft
caps and sinks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

import kvg_kernels
from kvg import canon
from kvg.digest import Digest, sha256
from kvg.model.cancelling import attention_inputs, bias_input, expert_inputs, linear_inputs
from kvg.model.dtypes import TORCH_DTYPES, tensor_digest
from kvg.model.made import made_input
from kvg.objects.computation import PROBE_VERSION
from kvg.objects.manifest import Schedule
from kvg_kernels.attention import BLOCK_TOKENS, attention
from kvg_kernels.bmm import baddbmm, bmm
from kvg_kernels.linear import SMALL_TILE, linear
from kvg_kernels.pointwise import pointwise

if TYPE_CHECKING:
    from kvg.model.invariant import AttentionShape
    from kvg.model.loader import LoadedModel

ROWS = 48
STOCK_ROWS = (1, 7)
"""Rows that stock operators are probed with, beside a whole page: their bits follow from it."""
BORDER = 20
"""Of the probed queries, so many lie before a border of key blocks."""
STOCK_FUSED = "sdpa"
"""The stock attention backend that is one operator; others are made of several."""
EXPERT_WEIGHTS = ("gate_up_proj", "up_proj", "down_proj")
"""What transformers calls the weights of all experts of a layer, ``[experts, …, …]``."""
ELEMENTWISE: tuple[tuple[str, Callable[[torch.Tensor], torch.Tensor]], ...] = (
    ("cos", torch.cos),
    ("sin", torch.sin),
    ("exp", torch.exp),
    ("tanh", torch.tanh),
    ("sigmoid", torch.sigmoid),
    ("silu", functional.silu),
    ("gelu", functional.gelu),
)


@dataclass(frozen=True, slots=True, order=True)
class LinearShape:
    """A linear layer of the model: how many inputs, how many outputs, and whether it adds."""

    n_in: int
    n_out: int
    has_bias: bool

    @property
    def key(self) -> tuple[int, int, bool]:
        """What a menu of tiles knows it by."""
        return self.n_in, self.n_out, self.has_bias

    def __str__(self) -> str:
        return f"{self.n_in} {self.n_out}{' bias' if self.has_bias else ''}"


@dataclass(frozen=True, slots=True, order=True)
class ExpertShape:
    """One product of an expert; ``is_transposed``: its weight is ``[n_in, n_out]`` in memory."""

    n_in: int
    n_out: int
    has_bias: bool
    is_transposed: bool

    def __str__(self) -> str:
        kind = f"{' bias' if self.has_bias else ''}{' transposed' if self.is_transposed else ''}"
        return f"{self.n_in} {self.n_out}{kind}"


def linear_shapes(model: LoadedModel) -> tuple[LinearShape, ...]:
    """The distinct shapes of the model's linear layers, ascending."""
    found = {
        LinearShape(layer.in_features, layer.out_features, layer.bias is not None)
        for layer in model.module.modules()
        if isinstance(layer, torch.nn.Linear)
    }
    return tuple(sorted(found))


def expert_shapes(model: LoadedModel) -> tuple[ExpertShape, ...]:
    """The distinct products of the model's experts, ascending; none without experts."""
    found = set()
    for layer in model.module.modules():
        for name in EXPERT_WEIGHTS:
            weight = getattr(layer, name, None)
            if isinstance(weight, torch.Tensor) and weight.dim() == 3:
                turned = bool(getattr(layer, "is_transposed", False))
                n_in, n_out = weight.shape[1:] if turned else reversed(weight.shape[1:])
                has_bias = bool(getattr(layer, "has_bias", False))
                found.add(ExpertShape(n_in, n_out, has_bias, turned))
    return tuple(sorted(found))


def probe(model: LoadedModel, schedule: Schedule | None) -> Digest:
    """The digest of what the operators of ``model`` give on this machine, in this reference."""
    outputs = scheduled_outputs(model, schedule) if schedule else invariant_outputs(model)
    return sha256(
        canon.encode(
            {
                "version": PROBE_VERSION,
                "kernels": kvg_kernels.VERSION if schedule is None else "stock",
                "outputs": [[name, tensor_digest(out)] for name, out in outputs],
            }
        )
    )


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors hold the same bytes."""
    a, b = a.contiguous(), b.contiguous()
    return a.shape == b.shape and torch.equal(
        a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8)
    )


@contextmanager
def one_thread() -> Iterator[None]:
    """Run the body with one compute thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


Product = tuple[torch.Tensor, torch.Tensor, "torch.Tensor | None"]
Attention = tuple[torch.Tensor, torch.Tensor, torch.Tensor, "torch.Tensor | None"]


class _Inputs:
    """Inputs of the model's operators, in its dtype and where it is."""

    def __init__(self, model: LoadedModel) -> None:
        self._dtype, self._device = TORCH_DTYPES[model.dtype], model.device

    def made(self, label: str, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        return made_input(label, shape, dtype or self._dtype).to(self._device)

    def linear(self, shape: LinearShape, n_rows: int) -> Product:
        """Rows ``[n_rows, n_in]``, a weight ``[n_out, n_in]``, and a bias where there is one."""
        x, weight = linear_inputs(shape.n_in, shape.n_out, n_rows, self._dtype)
        bias = bias_input(shape.n_out, self._dtype).to(self._device) if shape.has_bias else None
        return x.to(self._device), weight.to(self._device), bias

    def expert(self, shape: ExpertShape, n_rows: int) -> Product:
        """Rows ``[1, n_rows, n_in]``, a factor ``[1, n_in, n_out]``, a bias ``[1, 1, n_out]``."""
        x, factor, bias = expert_inputs(shape, n_rows, self._dtype)
        there = None if bias is None else bias.to(self._device)
        return x.to(self._device), factor.to(self._device), there

    def attention(self, shape: AttentionShape, n_keys: int) -> Iterator[tuple[str, Attention]]:
        """Of each kind: queries ``[H, ROWS, k_dim]``, keys, values ``[kv_heads, n_keys, dim]``,
        sinks ``[H]`` where there are."""
        heads = shape.kv_heads * shape.repeat
        sinks = self.made("sinks", heads) if shape.has_sinks else None
        plain = (
            made_input("query", (heads, ROWS, shape.k_dim), self._dtype) * 4,
            made_input("keys", (shape.kv_heads, n_keys, shape.k_dim), self._dtype),
            made_input("values", (shape.kv_heads, n_keys, shape.v_dim), self._dtype),
        )
        silent, loud = attention_inputs(
            shape, self._dtype, n_tokens=ROWS, n_blocks=n_keys // BLOCK_TOKENS
        )
        for kind, parts in (("plain", plain), ("silent", silent), ("loud", loud)):
            query, keys, values = (part.to(self._device) for part in parts)
            yield kind, (query, keys, values, sinks)


def first_query(shape: AttentionShape) -> int:
    """Where the probed queries begin: across a border of blocks, past where the window begins."""
    whole = -(-(shape.spec.window or 0) // BLOCK_TOKENS)
    return (whole + 1) * BLOCK_TOKENS - BORDER


def attention_name(shape: AttentionShape) -> str:
    """``shape`` in words: what an output of the probe is called."""
    spec = shape.spec
    parts = (
        f"{shape.kv_heads}x{shape.repeat} {shape.k_dim} {shape.v_dim} scale {spec.scale!r}",
        f"window {spec.window} cap {spec.softcap!r}{' sinks' if shape.has_sinks else ''}",
    )
    return f"attention {' '.join(parts)}"


def invariant_outputs(model: LoadedModel) -> Iterator[tuple[str, torch.Tensor]]:
    """What kvg's own operators give, by name, on every shape of ``model``."""
    inputs = _Inputs(model)
    for layer in linear_shapes(model):
        x, weight, bias = inputs.linear(layer, ROWS)
        yield f"linear {layer}", linear(x, weight, bias, tiles=(SMALL_TILE,))
    for expert in expert_shapes(model):
        x, factor, added = inputs.expert(expert, ROWS)
        out = bmm(x, factor) if added is None else baddbmm(added, x, factor)
        yield f"experts {expert}", out
    for shape in model.shapes:
        start = first_query(shape)
        n_keys = start + BORDER + BLOCK_TOKENS
        for kind, (query, keys, values, sinks) in inputs.attention(shape, n_keys):
            out = attention(query, keys, values, start, shape.spec, sinks=sinks)
            yield f"{attention_name(shape)} {kind}", out
    for kind in sorted({"F32", model.dtype}):
        x = inputs.made("elements", 4096, dtype=TORCH_DTYPES[kind]) * 8
        for name, op in ELEMENTWISE:
            yield f"{name} {kind}", pointwise(op, x)
    width = linear_shapes(model)[0].n_in
    yield "mean", inputs.made("rows", 8, width, dtype=torch.float32).pow(2).mean(-1)


def scheduled_outputs(model: LoadedModel, schedule: Schedule) -> Iterator[tuple[str, torch.Tensor]]:
    """What stock operators give, by name, on every shape of ``model`` in several sizes."""
    inputs = _Inputs(model)
    sizes = (*STOCK_ROWS, schedule.page_tokens)
    before = torch.get_num_threads()
    torch.set_num_threads(schedule.threads)
    try:
        for layer in linear_shapes(model):
            for n in sizes:
                yield f"linear {layer} {n}", functional.linear(*inputs.linear(layer, n))
        for expert in expert_shapes(model):
            for n in sizes:
                x, factor, added = inputs.expert(expert, n)
                product = torch.bmm(x, factor)
                yield f"experts {expert} {n}", product if added is None else product + added
        for shape in model.shapes:
            n_keys = first_query(shape) + BORDER + BLOCK_TOKENS
            for kind, given in inputs.attention(shape, n_keys):
                for n in STOCK_ROWS:
                    out = _stock_attention(shape, given, n, schedule.attention)
                    yield f"{attention_name(shape)} {kind} {n}", out
        for name, op in ELEMENTWISE:
            yield name, op(inputs.made("elements", 4096) * 8)
    finally:
        torch.set_num_threads(before)


def _stock_attention(shape: AttentionShape, given: Attention, n: int, backend: str) -> torch.Tensor:
    """What the stock ``backend`` gives for ``n`` queries: fused, or products and a softmax.

    Caps and sinks have no fused form.
    """
    spec, start = shape.spec, first_query(shape)
    query, keys, values, sinks = given
    query = query[:, :n].unsqueeze(0)
    keys = keys[:, : start + n].repeat_interleave(shape.repeat, 0).unsqueeze(0)
    values = values[:, : start + n].repeat_interleave(shape.repeat, 0).unsqueeze(0)
    at = torch.arange(start, start + n, device=query.device).unsqueeze(1)
    key = torch.arange(start + n, device=query.device)
    seen = (key <= at) & (key > at - (spec.window or start + n))
    if backend == STOCK_FUSED and spec.softcap is None and sinks is None:
        return functional.scaled_dot_product_attention(
            query, keys, values, attn_mask=seen, scale=spec.scale
        )
    scores = torch.matmul(query, keys.transpose(2, 3)) * spec.scale
    if spec.softcap is not None:
        scores = torch.tanh(scores / spec.softcap) * spec.softcap
    scores = scores.masked_fill(~seen, float("-inf"))
    if sinks is not None:
        scores = torch.cat([scores, sinks.view(1, -1, 1, 1).expand(-1, -1, n, 1)], -1)
    weights = functional.softmax(scores, dim=-1, dtype=torch.float32).to(values.dtype)
    return torch.matmul(weights[..., : start + n], values)
