"""Invariant execution against the stock one of the same model: times taken side by side.

The stock side is an unmodified transformers model with ``sdpa`` and its own dynamic cache. The two
take turns within every repeat, so that what else the machine does falls on both, and the ratio of
each pair is kept: medians of ratios, not ratios of medians.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, DynamicCache

from kvg.model.adapter import apply_adapter
from kvg.model.dtypes import TORCH_DTYPES
from kvg.model.loader import cache_argument
from kvg.model.session import Session, Slot


@dataclass(frozen=True, slots=True)
class Pair:
    """Seconds by the clock and of the processor that the same work took on either side."""

    stock: float
    invariant: float
    stock_cpu: float
    invariant_cpu: float


class StockModel:
    """The same folder as transformers runs it by itself."""

    def __init__(
        self, folder: Path, dtype: str, device: torch.device, adapter: Path | None
    ) -> None:
        self._module = AutoModelForCausalLM.from_pretrained(
            str(folder),
            dtype=TORCH_DTYPES[dtype],
            attn_implementation="sdpa",
            local_files_only=True,
            trust_remote_code=False,
        )
        if adapter is not None:
            apply_adapter(self._module, adapter)
        self._module.eval().to(device)
        self._device = device

    def run(self, ids: Sequence[int], cache: DynamicCache) -> torch.Tensor:
        """Append ``ids`` to ``cache`` and compute the logits ``[vocabulary]`` of the last one."""
        tokens = torch.tensor([list(ids)], device=self._device)
        held = {cache_argument(self._module): cache}
        with torch.inference_mode():
            out = self._module(input_ids=tokens, use_cache=True, logits_to_keep=1, **held)
        logits: torch.Tensor = out.logits[0, -1]
        return logits


def prefill_pairs(
    session: Session, stock: StockModel, ids: Sequence[int], repeats: int
) -> Iterator[Pair]:
    """Times of a prefill of ``ids`` into an empty state, once unmeasured and then ``repeats``."""

    def ours() -> None:
        session.prefill(session.slot(), ids, [len(ids) - 1])

    def theirs() -> None:
        stock.run(ids, DynamicCache())

    yield from _pairs(theirs, ours, repeats)


def decode_pairs(
    session: Session, stock: StockModel, ids: Sequence[int], steps: int
) -> Iterator[Pair]:
    """Times of one decode step after ``ids``, once unmeasured and then ``steps`` times."""
    slot, cache = session.slot(), DynamicCache()
    session.prefill(slot, ids)
    stock.run(ids, cache)
    token = ids[-1]
    yield from _pairs(lambda: stock.run([token], cache), lambda: _step(session, slot, token), steps)


def _step(session: Session, slot: Slot, token: int) -> None:
    session.run(slot, [token], [0])


def _pairs(
    theirs: Callable[[], object], ours: Callable[[], object], repeats: int
) -> Iterator[Pair]:
    theirs()
    ours()
    for number in range(repeats):
        # Who goes first alternates, so that neither always finds the caches as the other left them.
        if number % 2:
            invariant, stock = _timed(ours), _timed(theirs)
        else:
            stock, invariant = _timed(theirs), _timed(ours)
        yield Pair(stock[0], invariant[0], stock[1], invariant[1])


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu
