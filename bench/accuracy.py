"""How far logits are from a float64 run: kvg's invariant execution and stock sdpa, side by side.

The same weights, in bf16 and fp32, on a random Llama, a random Gemma 3 with sliding layers, and on
a model of one's own. The float64 run takes no step in fp32: the casts that models make inside
(norms, softmax, rotary angles) are widened too. One JSON record a line on standard output, a table
on standard error; the exit status is 1 when invariant's error is the larger one by more than 2 %.

    python bench/accuracy.py [--model FOLDER] [--tokens 512] > bench/results/accuracy.jsonl
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

import torch  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from transformers import (  # noqa: E402
    AutoModelForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
)

from kvg.digest import sha256  # noqa: E402
from kvg.flow.bench.setup import cpu_name  # noqa: E402
from kvg.model.dtypes import TORCH_DTYPES, tensor_digest  # noqa: E402
from kvg.model.exactness import made_ids  # noqa: E402
from kvg.model.opening import open_session  # noqa: E402
from kvg.model.versions import library_versions  # noqa: E402
from kvg.objects.tokens import encode_ids  # noqa: E402

SLACK = 1.02
"""How much larger an error counts as larger: it varies by about this with the text."""
TINY: dict[str, Any] = {
    "vocab_size": 2048,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 4096,
    "initializer_range": 0.06,
}


@dataclass(frozen=True, slots=True)
class Error:
    """How far one execution's logits are from float64, over all positions of one text.

    ``rms`` and ``largest`` are differences of logits; ``kl`` is the mean divergence of a position's
    distribution in nats; ``argmax_rate`` how often the most likely token is that of float64.
    """

    type: str
    model: str
    dtype: str
    execution: str
    tokens: int
    input: str
    logits: str
    rms: float
    largest: float
    kl: float
    argmax_rate: float


class Widened(TorchFunctionMode):
    """Every cast to float32 becomes one to float64."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        if func is torch.Tensor.float:
            return args[0].double()
        wide = {torch.float32: torch.float64}
        args = tuple(wide.get(a, a) if isinstance(a, torch.dtype) else a for a in args)
        kwargs = {
            name: wide.get(a, a) if isinstance(a, torch.dtype) else a
            for name, a in (kwargs or {}).items()
        }
        return func(*args, **kwargs)


def stock_logits(folder: Path, dtype: torch.dtype, ids: Sequence[int]) -> torch.Tensor:
    """Logits ``[T, vocabulary]`` of an unmodified model with stock sdpa."""
    module = load(folder, dtype)
    with torch.inference_mode():
        return module(input_ids=torch.tensor([ids]), use_cache=False).logits[0]


def true_logits(folder: Path, dtype: torch.dtype, ids: Sequence[int]) -> torch.Tensor:
    """Logits of the weights rounded to ``dtype``, computed in float64 throughout."""
    module = load(folder, dtype).to(torch.float64)
    with torch.inference_mode(), Widened():
        logits = module(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    if logits.dtype != torch.float64:
        raise SystemExit(f"{folder}: the float64 run came out in {logits.dtype}")
    return logits


def load(folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="sdpa"
    ).eval()


def invariant_logits(folder: Path, dtype: str, ids: Sequence[int]) -> torch.Tensor:
    """Logits of kvg's invariant execution in one pass."""
    session = open_session(folder, dtype=dtype, device="cpu", reference="invariant")
    return session.run(session.slot(), ids, range(len(ids)))


def errors(name: str, folder: Path, dtype: str, n_tokens: int) -> Iterator[Error]:
    """The error of each execution of the model in ``folder``."""
    kind = TORCH_DTYPES[dtype]
    config = json.loads((folder / "config.json").read_text())
    ids = made_ids(0, n_tokens, config["vocab_size"])
    truth = true_logits(folder, kind, ids)
    log_truth = torch.log_softmax(truth, -1)
    for execution, logits in (
        ("sdpa", stock_logits(folder, kind, ids)),
        ("invariant", invariant_logits(folder, dtype, ids)),
    ):
        wide = logits.double()
        log_found = torch.log_softmax(wide, -1)
        yield Error(
            type="accuracy",
            model=name,
            dtype=dtype,
            execution=execution,
            tokens=n_tokens,
            input=sha256(encode_ids(ids)),
            logits=tensor_digest(logits),
            rms=float((wide - truth).square().mean().sqrt()),
            largest=float((wide - truth).abs().max()),
            kl=float((log_truth.exp() * (log_truth - log_found)).sum(-1).mean()),
            argmax_rate=float((wide.argmax(-1) == truth.argmax(-1)).double().mean()),
        )


def make_tiny(folder: Path) -> dict[str, Path]:
    """A random Llama and a random Gemma 3 whose layers have a window of 128."""
    kinds = ["sliding_attention", "sliding_attention", "full_attention"] * 2
    gemma = Gemma3TextConfig(
        **TINY, layer_types=kinds, sliding_window=128, query_pre_attn_scalar=32
    )
    for name, make, config in (
        ("tiny llama", LlamaForCausalLM, LlamaConfig(**TINY)),
        ("tiny gemma3", Gemma3ForCausalLM, gemma),
    ):
        torch.manual_seed(0)
        make(config).save_pretrained(folder / name.replace(" ", "-"))
    return {name: folder / name.replace(" ", "-") for name in ("tiny llama", "tiny gemma3")}


def main() -> int:
    """The program. Returns its exit status."""
    parser = argparse.ArgumentParser(description="Compare logits with a float64 run.")
    parser.add_argument("--model", type=Path, action="append", help="the folder of a real model")
    parser.add_argument("--name", action="append", help="what to call it in the results")
    parser.add_argument("--tokens", type=int, default=512)
    asked = parser.parse_args()
    print(
        json.dumps(
            {
                "type": "setup",
                "cpu": cpu_name(),
                "versions": library_versions(),
                "threads": torch.get_num_threads(),
            }
        )
    )
    worse = False
    with tempfile.TemporaryDirectory() as made:
        folders = make_tiny(Path(made))
        for number, folder in enumerate(asked.model or ()):
            folders[asked.name[number] if asked.name else folder.name] = folder
        for name, folder in folders.items():
            for dtype in ("BF16", "F32"):
                stock, invariant = errors(name, folder, dtype, asked.tokens)
                for found in (stock, invariant):
                    print(json.dumps(asdict(found)), flush=True)
                ratio = invariant.rms / stock.rms
                worse = worse or ratio > SLACK
                print(
                    f"{name:<14} {dtype:<5} rms error: sdpa {stock.rms:.3e}  invariant "
                    f"{invariant.rms:.3e}  ratio {ratio:.3f}   KL: {stock.kl:.2e}  "
                    f"{invariant.kl:.2e}   argmax: {stock.argmax_rate:.4f}  "
                    f"{invariant.argmax_rate:.4f}",
                    file=sys.stderr,
                )
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
