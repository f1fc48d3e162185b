"""How far each operator of a pass is from float64, kvg's form and the stock one on the same inputs.

    python bench/roundings.py FOLDER [--dtype BF16] [--tokens 512] [--samples 3]

The inputs are those that a stock sdpa pass over random ids gives each operator. One JSON record a
line for linear layers, SiLU and attention: how many calls, the error of each form against float64
(root mean square over calls of the error's root mean square as a part of the result's), the least
error that the dtype allows (float64 rounded once), and the share of elements in which the two forms
differ. Where errors are equal and hardly an element differs, neither rounds more often: what is
left between the logits is what the layers above make of that.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

import torch  # noqa: E402
from torch.nn import functional  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS  # noqa: E402
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS  # noqa: E402

from kvg.model.dtypes import TORCH_DTYPES  # noqa: E402
from kvg.model.exactness import made_ids  # noqa: E402
from kvg_kernels.attention import BLOCK_TOKENS, AttentionSpec, attention, tile_menu  # noqa: E402
from kvg_kernels.linear import TILES, linear  # noqa: E402
from kvg_kernels.pointwise import pointwise  # noqa: E402

MAX_OUT = 16_384
"""Outputs of the largest linear layer that is looked at: float64 takes long."""
STOCK, SEEN = "sdpa", "kvg_seen"


class Errors:
    """The errors of one operator, call by call."""

    def __init__(self) -> None:
        self._stock: list[float] = []
        self._own: list[float] = []
        self._least: list[float] = []
        self._other: list[float] = []

    def add(self, stock: torch.Tensor, own: torch.Tensor, true: torch.Tensor) -> None:
        """What both forms gave, and float64, all of one shape."""
        self._stock.append(relative(stock, true))
        self._own.append(relative(own, true))
        self._least.append(relative(true.to(stock.dtype), true))
        self._other.append(float((stock != own).double().mean()))

    def record(self) -> dict[str, float]:
        return {
            "calls": len(self._own),
            "sdpa": pooled(self._stock),
            "invariant": pooled(self._own),
            "least": pooled(self._least),
            "differ": sum(self._other) / len(self._other),
        }


def relative(found: torch.Tensor, true: torch.Tensor) -> float:
    return float((found.double() - true).square().mean().sqrt() / true.square().mean().sqrt())


def pooled(errors: list[float]) -> float:
    return math.sqrt(sum(error * error for error in errors) / len(errors))


def watch(module: torch.nn.Module, found: dict[str, Errors]) -> None:
    """Have every linear layer, SiLU and attention of ``module`` leave its errors in ``found``."""

    def of_linear(layer: torch.nn.Linear, args: tuple[torch.Tensor], out: torch.Tensor) -> None:
        (x,) = args
        bias = None if layer.bias is None else layer.bias.double()
        true = functional.linear(x.double(), layer.weight.double(), bias)
        found["linear"].add(out, linear(x, layer.weight, layer.bias, tiles=TILES), true)

    def of_silu(_: torch.nn.Module, args: tuple[torch.Tensor], out: torch.Tensor) -> None:
        own = pointwise(functional.silu, args[0])
        found["silu"].add(out, own, functional.silu(args[0].double()))

    for part in module.modules():
        if isinstance(part, torch.nn.Linear) and part.out_features <= MAX_OUT:
            part.register_forward_hook(of_linear)
        elif type(part).__name__ in ("SiLU", "SiLUActivation"):
            part.register_forward_hook(of_silu)
    ALL_ATTENTION_FUNCTIONS.register(SEEN, seen_attention(found["attention"]))
    ALL_MASK_ATTENTION_FUNCTIONS.register(SEEN, ALL_MASK_ATTENTION_FUNCTIONS[STOCK])
    module.set_attn_implementation(SEEN)


def seen_attention(errors: Errors) -> Callable[..., tuple[torch.Tensor, None]]:
    """Stock attention as the transformers interface calls it; windows, caps, sinks are refused."""
    stock = ALL_ATTENTION_FUNCTIONS[STOCK]

    def call(
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None,
        **more: object,
    ) -> tuple[torch.Tensor, None]:
        if any(more.get(name) is not None for name in ("sliding_window", "softcap", "s_aux")):
            raise SystemExit("a model with windows, soft caps or sinks is not looked at")
        out = stock(module, query, key, value, mask, **more)
        scale = float(more.get("scaling") or query.shape[-1] ** -0.5)
        q, k, v = (tensor[0].contiguous() for tensor in (query, key, value))
        repeat = q.shape[0] // k.shape[0]
        own = attention(*padded(q, k, v), 0, AttentionSpec(scale), tiles=tile_menu(repeat))
        wide_keys, wide_values = (t.double().repeat_interleave(repeat, 0) for t in (k, v))
        scores = q.double() @ wide_keys.mT * scale
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        true = scores.masked_fill(hidden, -math.inf).softmax(-1) @ wide_values
        errors.add(out[0][0].transpose(0, 1), own[:, : q.shape[1]], true)
        return out  # type: ignore[no-any-return]

    return call


def padded(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Each ``[H, T, D]`` with zeros after its tokens, up to whole blocks of keys."""
    return tuple(functional.pad(t, (0, 0, 0, -t.shape[1] % BLOCK_TOKENS)) for t in tensors)


def main() -> int:
    """The program. Returns its exit status."""
    parser = argparse.ArgumentParser(description="Compare operators with float64.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dtype", default="BF16")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--samples", type=int, default=3, help="texts")
    asked = parser.parse_args()
    module = AutoModelForCausalLM.from_pretrained(
        asked.folder, dtype=TORCH_DTYPES[asked.dtype], attn_implementation=STOCK
    ).eval()
    found: dict[str, Errors] = defaultdict(Errors)
    watch(module, found)
    with torch.inference_mode():
        for sample in range(asked.samples):
            ids = made_ids(sample, asked.tokens, module.config.vocab_size)
            module(input_ids=torch.tensor([ids]), use_cache=False)
    for name, errors in found.items():
        print(json.dumps({"operator": name, "dtype": asked.dtype, **errors.record()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
