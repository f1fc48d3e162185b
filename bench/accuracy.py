"""How far logits are from a float64 run: kvg's invariant execution and stock sdpa, side by side.

The same weights, in bf16 and fp32, on a random Llama, a random Gemma 3 with sliding layers, and on
a model of one's own. The float64 run takes no step in fp32: the casts that models make inside
(norms, softmax, rotary angles) are widened too.

Which of two roundings is nearer to the truth differs from text to text, so there are many: of each
text the ratio of the two errors (invariant over sdpa) is taken, and of the ratios the geometric
mean with the interval that holds it with 95 % confidence. One JSON record a line on standard
output, a table on standard error; the exit status is 1 when that whole interval lies above 1: when
invariant's error is the larger one beyond chance.

    python bench/accuracy.py [--model FOLDER] [--tokens 512] [--samples 16] > accuracy.jsonl
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
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

NORMAL_95 = 1.96
"""Standard errors on either side of a mean that hold it with 95 % confidence."""
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

    ``sample`` is the text's number. ``rms`` and ``largest`` are differences of logits; ``kl`` is
    the mean divergence of a position's distribution in nats; ``argmax_rate`` how often the most
    likely token is that of float64.
    """

    type: str
    model: str
    dtype: str
    execution: str
    sample: int
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


@dataclass(frozen=True, slots=True)
class Row:
    """All texts of one model and dtype. ``ratio``: invariant's RMS error over that of sdpa."""

    type: str
    model: str
    dtype: str
    texts: int
    rms_sdpa: float
    rms_invariant: float
    ratio: float
    ratio_low: float
    ratio_high: float


class Executions:
    """One model in one dtype, loaded three times: stock, in float64, and invariant."""

    def __init__(self, folder: Path, dtype: str) -> None:
        kind = TORCH_DTYPES[dtype]
        self._stock = load(folder, kind)
        self._true = load(folder, kind).to(torch.float64)
        self._session = open_session(folder, dtype=dtype, device="cpu", reference="invariant")
        self.vocabulary = self._session.model.vocabulary

    def stock(self, ids: Sequence[int]) -> torch.Tensor:
        """Logits ``[T, vocabulary]`` of an unmodified model with stock sdpa."""
        with torch.inference_mode():
            return self._stock(input_ids=torch.tensor([ids]), use_cache=False).logits[0]

    def true(self, ids: Sequence[int]) -> torch.Tensor:
        """Logits of the weights rounded to the dtype, computed in float64 throughout."""
        with torch.inference_mode(), Widened():
            logits = self._true(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
        if logits.dtype != torch.float64:
            raise SystemExit(f"the float64 run came out in {logits.dtype}")
        return logits

    def invariant(self, ids: Sequence[int]) -> torch.Tensor:
        """Logits of kvg's invariant execution in one pass."""
        return self._session.run(self._session.slot(), ids, range(len(ids)))


def load(folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="sdpa"
    ).eval()


def errors(name: str, executions: Executions, dtype: str, sample: int, n: int) -> Iterator[Error]:
    """The error of stock and of invariant execution on text number ``sample``, ``n`` tokens."""
    ids = made_ids(sample, n, executions.vocabulary)
    truth = executions.true(ids)
    log_truth = torch.log_softmax(truth, -1)
    for execution, logits in (
        ("sdpa", executions.stock(ids)),
        ("invariant", executions.invariant(ids)),
    ):
        wide = logits.double()
        log_found = torch.log_softmax(wide, -1)
        yield Error(
            type="accuracy",
            model=name,
            dtype=dtype,
            execution=execution,
            sample=sample,
            tokens=n,
            input=sha256(encode_ids(ids)),
            logits=tensor_digest(logits),
            rms=float((wide - truth).square().mean().sqrt()),
            largest=float((wide - truth).abs().max()),
            kl=float((log_truth.exp() * (log_truth - log_found)).sum(-1).mean()),
            argmax_rate=float((wide.argmax(-1) == truth.argmax(-1)).double().mean()),
        )


def row_of(found: Sequence[Error]) -> Row:
    """What the errors of one model and dtype come to."""
    stock = [error.rms for error in found if error.execution == "sdpa"]
    invariant = [error.rms for error in found if error.execution == "invariant"]
    logs = [math.log(b / a) for a, b in zip(stock, invariant, strict=True)]
    middle = statistics.fmean(logs)
    reach = NORMAL_95 * statistics.stdev(logs) / math.sqrt(len(logs))
    return Row(
        type="accuracy-row",
        model=found[0].model,
        dtype=found[0].dtype,
        texts=len(logs),
        rms_sdpa=math.sqrt(statistics.fmean(rms * rms for rms in stock)),
        rms_invariant=math.sqrt(statistics.fmean(rms * rms for rms in invariant)),
        ratio=math.exp(middle),
        ratio_low=math.exp(middle - reach),
        ratio_high=math.exp(middle + reach),
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
    parser.add_argument("--samples", type=int, default=16, help="texts; at least 2")
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
                executions = Executions(folder, dtype)
                found: list[Error] = []
                for sample in range(asked.samples):
                    for error in errors(name, executions, dtype, sample, asked.tokens):
                        found.append(error)
                        print(json.dumps(asdict(error)), flush=True)
                row = row_of(found)
                print(json.dumps(asdict(row)), flush=True)
                worse = worse or row.ratio_low > 1
                print(
                    f"{name:<22} {dtype:<5} rms error: sdpa {row.rms_sdpa:.4e}  invariant "
                    f"{row.rms_invariant:.4e}  ratio {row.ratio:.4f} ({row.ratio_low:.4f} to "
                    f"{row.ratio_high:.4f})",
                    file=sys.stderr,
                )
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
