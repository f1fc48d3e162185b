"""The probe: how this machine computes, as one digest.

Inputs come from SHAKE-256 of a label (u16 to float in [-1, 1) to the model's dtype), never from a
library's random generator, so two machines with equal probes give equal bits for equal operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch.nn import functional

import kvg_kernels
from kvg import canon
from kvg.digest import Digest, sha256, shake256
from kvg.model.dtypes import TORCH_DTYPES, tensor_digest
from kvg.model.loader import LoadedModel
from kvg.model.state import zeros_aligned
from kvg.objects.manifest import Group, Schedule
from kvg_kernels.attention import BLOCK_TOKENS, AttentionSpec, attention
from kvg_kernels.linear import SMALL_TILE, linear
from kvg_kernels.pointwise import pointwise

PROBE_VERSION = "kvg.probe/1"
PATTERN_ELEMENTS = 1 << 18
"""Elements drawn per input; longer inputs repeat them."""
ROWS = 48
STOCK_FUSED = "sdpa"
"""The stock attention backend that is one operator; others are made of several."""
ELEMENTWISE: tuple[tuple[str, Callable[[torch.Tensor], torch.Tensor]], ...] = (
    ("cos", torch.cos),
    ("sin", torch.sin),
    ("exp", torch.exp),
    ("tanh", torch.tanh),
    ("sigmoid", torch.sigmoid),
    ("silu", functional.silu),
    ("gelu", functional.gelu),
)


@dataclass(frozen=True, slots=True)
class LinearShape:
    """A linear layer of the model: how many inputs, how many outputs."""

    n_in: int
    n_out: int


def linear_shapes(model: LoadedModel) -> tuple[LinearShape, ...]:
    """The distinct shapes of the model's linear layers, ascending."""
    found = {
        (layer.in_features, layer.out_features)
        for layer in model.module.modules()
        if isinstance(layer, torch.nn.Linear)
    }
    return tuple(LinearShape(*shape) for shape in sorted(found))


def made_input(label: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """An aligned tensor of ``shape`` whose elements follow from ``label`` alone."""
    total = 1
    for size in shape:
        total *= size
    n = min(total, PATTERN_ELEMENTS)
    words = torch.frombuffer(
        bytearray(shake256(f"{PROBE_VERSION} {label}".encode(), 2 * n)), dtype=torch.uint16
    )
    pattern = (words.to(torch.float32) / 32768 - 1).to(dtype)
    out = zeros_aligned(shape, dtype, torch.device("cpu"))
    flat = out.view(-1)
    for start in range(0, total, n):
        part = flat[start : start + n]
        part.copy_(pattern[: part.numel()])
    return out


def probe(model: LoadedModel, schedule: Schedule | None) -> Digest:
    """The digest of what the operators of ``model`` give on this machine, in this reference."""
    outputs = _scheduled_outputs(model, schedule) if schedule else _invariant_outputs(model)
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


def _invariant_outputs(model: LoadedModel) -> Iterator[tuple[str, torch.Tensor]]:
    dtype = TORCH_DTYPES[model.dtype]
    for shape in linear_shapes(model):
        x = made_input("rows", (ROWS, shape.n_in), dtype)
        weight = made_input("weight", (shape.n_out, shape.n_in), dtype)
        name = f"linear {shape.n_in} {shape.n_out}"
        yield name, linear(x, weight, tiles=(SMALL_TILE,))
    for group in model.groups:
        query, keys, values = attention_inputs(group, heads_per_key(model, group), dtype)
        spec = AttentionSpec(scale=group.k_dim**-0.5, window=group.window)
        out = attention(query, keys, values, BLOCK_TOKENS - 20, spec)
        yield f"attention {group.name}", out
    for kind in sorted({"F32", model.dtype}):
        x = made_input("elements", (4096,), TORCH_DTYPES[kind]) * 8
        for name, op in ELEMENTWISE:
            yield f"{name} {kind}", pointwise(op, x)
    width = linear_shapes(model)[0].n_in
    yield "mean", made_input("rows", (8, width), torch.float32).pow(2).mean(-1)


def _scheduled_outputs(
    model: LoadedModel, schedule: Schedule
) -> Iterator[tuple[str, torch.Tensor]]:
    dtype = TORCH_DTYPES[model.dtype]
    before = torch.get_num_threads()
    torch.set_num_threads(schedule.threads)
    try:
        for shape in linear_shapes(model):
            weight = made_input("weight", (shape.n_out, shape.n_in), dtype)
            for n_rows in (1, 7, schedule.page_tokens):
                x = made_input("rows", (n_rows, shape.n_in), dtype)
                name = f"linear {shape.n_in} {shape.n_out} {n_rows}"
                yield name, functional.linear(x, weight)
        for group in model.groups:
            for n in (1, 7):
                out = _stock_attention(model, group, n, dtype, schedule.attention)
                yield f"attention {group.name} {n}", out
        for name, op in ELEMENTWISE:
            yield name, op(made_input("elements", (4096,), dtype) * 8)
    finally:
        torch.set_num_threads(before)


def _stock_attention(
    model: LoadedModel, group: Group, n: int, dtype: torch.dtype, backend: str
) -> torch.Tensor:
    """What the stock ``backend`` gives for ``n`` queries: fused, or products and a softmax."""
    repeat = heads_per_key(model, group)
    query, keys, values = attention_inputs(group, repeat, dtype)
    query = query[:, :n].unsqueeze(0)
    keys = keys.repeat_interleave(repeat, 0).unsqueeze(0)
    values = values.repeat_interleave(repeat, 0).unsqueeze(0)
    if backend == STOCK_FUSED:
        return functional.scaled_dot_product_attention(query, keys, values)
    scores = torch.matmul(query, keys.transpose(2, 3)) * group.k_dim**-0.5
    weights = functional.softmax(scores, dim=-1, dtype=torch.float32).to(dtype)
    return torch.matmul(weights, values)


def heads_per_key(model: LoadedModel, group: Group) -> int:
    """How many query heads share one key head in the layers of ``group``."""
    heads = int(model.module.config.get_text_config().num_attention_heads)
    return max(1, heads // group.kv_heads)


def attention_inputs(
    group: Group, repeat: int, dtype: torch.dtype, *, n_tokens: int = ROWS, n_blocks: int = 2
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Query ``[H, n_tokens, k_dim]``, keys and values ``[kv_heads, 256 * n_blocks, dim]``."""
    n_keys = n_blocks * BLOCK_TOKENS
    return (
        made_input("query", (group.kv_heads * repeat, n_tokens, group.k_dim), dtype) * 4,
        made_input("keys", (group.kv_heads, n_keys, group.k_dim), dtype),
        made_input("values", (group.kv_heads, n_keys, group.v_dim), dtype),
    )
