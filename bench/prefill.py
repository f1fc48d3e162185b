"""Where the time of a long prefill goes, operator by operator: invariant, and the stock model.

    python bench/prefill.py MODEL_FOLDER [--tokens 7000] [--rounds 3] > prefill.jsonl

Two records for each operator that takes a hundredth of either: seconds in it, and how often it was
called. Then, for one block of 256 queries against so many keys, what the call to stock attention
takes in four forms: with the mask as one line (what kvg does), with a row of mask for each query,
with no mask at all, and with no mask and four blocks of queries at once. The last two compute
something else: they say what a mask and small calls cost. Best and median of the rounds in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kernels"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile
from transformers import DynamicCache

from kvg.model.exactness import made_ids
from kvg.model.opening import open_session
from kvg.model.speed import StockModel
from kvg_kernels.attention import BLOCK_TOKENS

LEAST_SHARE = 0.01
MENU = (1024, 4096, 7168)
HEADS, GROUPS, WIDTH = 9, 3, 64
"""The attention of SmolLM2-135M."""


def seconds_by_operator(run: Callable[[], object]) -> dict[str, tuple[float, int]]:
    """Seconds in each operator itself, as the calling thread sees them, and its calls."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        run()
    return {
        event.key: (event.self_cpu_time_total / 1e6, event.count) for event in seen.key_averages()
    }


def operators(model: Path, n_tokens: int) -> Iterator[dict[str, object]]:
    """What both executions spend where."""
    session = open_session(model, dtype="BF16", device="cpu", reference="invariant")
    stock = StockModel(model, "BF16", torch.device("cpu"), None)
    ids = made_ids(0, n_tokens, session.model.vocabulary)
    runs: dict[str, Callable[[], object]] = {
        "invariant": lambda: session.prefill(session.slot(), ids, [n_tokens - 1]),
        "stock": lambda: stock.run(ids, DynamicCache()),
    }
    for run in runs.values():
        run()
    found = {name: seconds_by_operator(run) for name, run in runs.items()}
    total = {name: sum(s for s, _ in spent.values()) for name, spent in found.items()}
    for name, spent in found.items():
        yield {"type": "prefill-sum", "execution": name, "tokens": n_tokens, "seconds": total[name]}
        for operator, (seconds, calls) in sorted(spent.items(), key=lambda item: -item[1][0]):
            if seconds >= LEAST_SHARE * total[name]:
                yield {
                    "type": "prefill-operator",
                    "execution": name,
                    "operator": operator,
                    "seconds": seconds,
                    "calls": calls,
                    "share": seconds / total[name],
                }


def forms(n_keys: int) -> dict[str, Callable[[], torch.Tensor]]:
    """The four calls, for one block of queries or four."""
    repeat = HEADS // GROUPS
    keys, values = (torch.randn(GROUPS, n_keys, WIDTH, dtype=torch.bfloat16) for _ in range(2))
    seen = [part.unsqueeze(0).expand(repeat, -1, -1, -1) for part in (keys, values)]
    few = torch.randn(repeat, GROUPS, BLOCK_TOKENS, WIDTH, dtype=torch.bfloat16)
    many = torch.randn(repeat, GROUPS, 4 * BLOCK_TOKENS, WIDTH, dtype=torch.bfloat16)
    line = torch.zeros(n_keys + BLOCK_TOKENS - 1, dtype=torch.bfloat16)
    line[n_keys:] = -torch.inf
    as_line = line.as_strided((1, 1, BLOCK_TOKENS, n_keys), (0, 0, 1, 1))
    as_rows = as_line.contiguous()
    attend = functional.scaled_dot_product_attention
    return {
        "mask as a line": lambda: attend(few, *seen, attn_mask=as_line),
        "mask of rows": lambda: attend(few, *seen, attn_mask=as_rows),
        "no mask": lambda: attend(few, *seen),
        "no mask, four blocks": lambda: attend(many, *seen),
    }


def calls(n_keys: int, rounds: int) -> Iterator[dict[str, object]]:
    """Milliseconds of each form for a block of queries, the forms in turn."""
    menu = forms(n_keys)
    spent: dict[str, list[float]] = {name: [] for name in menu}
    for _ in range(10 * rounds):
        for name, call in menu.items():
            began = time.perf_counter()
            call()
            taken = 1e3 * (time.perf_counter() - began)
            spent[name].append(taken / 4 if "four" in name else taken)
    for name, times in spent.items():
        yield {
            "type": "prefill-call",
            "form": name,
            "keys": n_keys,
            "best_ms": min(times),
            "median_ms": statistics.median(times),
            "runs_ms": times,
        }


def main(args: list[str] | None = None) -> int:
    """The program. Returns its exit status."""
    parser = argparse.ArgumentParser(description="Where the time of a long prefill goes.")
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", type=int, default=7000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args(args)
    versions = {"python": sys.version.split()[0], "torch": torch.__version__}
    threads = torch.get_num_threads()
    print(json.dumps({"type": "prefill-setup", "threads": threads, "versions": versions}))
    for record in operators(asked.model, asked.tokens):
        print(json.dumps(record), flush=True)
    for n_keys in MENU:
        for record in calls(n_keys, asked.rounds):
            print(json.dumps(record), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
