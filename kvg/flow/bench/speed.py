"""``kvg bench speed``: invariant execution against stock attention, pair by pair."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Literal

from kvg.digest import sha256
from kvg.errors import UsageError
from kvg.flow.bench.setup import check_least, check_listed, open_measured, setup_of
from kvg.flow.records.bench import SpeedRow
from kvg.flow.records.record import Record
from kvg.flow.registered import check_torch
from kvg.flow.settings import Settings
from kvg.objects.tokens import encode_ids

if TYPE_CHECKING:
    from kvg.model.speed import Pair
    from kvg.store import Store

LENGTHS = (1000, 7000)
REPEATS = 5
STEPS = 16


@dataclass(frozen=True, slots=True)
class SpeedRequest:
    """Time ``repeats`` prefills of each of ``lengths`` tokens, and ``steps`` decode steps after."""

    model: str | None = None
    lengths: tuple[int, ...] = LENGTHS
    repeats: int = REPEATS
    steps: int = STEPS

    def __post_init__(self) -> None:
        check_listed("--lengths", self.lengths)
        check_least("--repeats", self.repeats, 1)
        check_least("--steps", self.steps, 1)
        if not self.lengths:
            raise UsageError("--lengths: none", hint="kvg bench speed --help")


def bench_speed(store: Store, settings: Settings, request: SpeedRequest) -> Iterator[Record]:
    """Yield the setup, then two ``SpeedRow`` for each length: prefill and decode.

    Raises ``NotFound``, ``Incompatible``.
    """
    check_torch()
    whole = max(request.lengths) + request.steps + 1
    model, session = open_measured(store, settings, request.model, whole)
    session.check_window(whole)
    yield setup_of("speed", model, session)
    from kvg.model.exactness import made_ids
    from kvg.model.speed import StockModel, decode_pairs, prefill_pairs

    stock = StockModel(model.path, model.dtype, session.model.device, model.adapter)
    for length in request.lengths:
        ids = made_ids(0, length, session.model.vocabulary)
        with settings.report.task(f"speed {length}", request.repeats, "prefills") as task:
            pairs = []
            for pair in prefill_pairs(session, stock, ids, request.repeats):
                pairs.append(pair)
                task.advance(1)
        yield _row("prefill", ids, pairs)
        yield _row("decode", ids, [*decode_pairs(session, stock, ids, request.steps)])


def _row(work: Literal["prefill", "decode"], ids: Sequence[int], pairs: Sequence[Pair]) -> SpeedRow:
    ratios = sorted(pair.invariant / pair.stock for pair in pairs)
    return SpeedRow(
        work=work,
        tokens=len(ids),
        input=sha256(encode_ids(ids)),
        repeats=len(pairs),
        stock_ms=1e3 * median(pair.stock for pair in pairs),
        invariant_ms=1e3 * median(pair.invariant for pair in pairs),
        ratio=median(ratios),
        ratio_low=ratios[len(ratios) // 4],
        ratio_high=ratios[-1 - len(ratios) // 4],
        ratio_cpu=median(pair.invariant_cpu / pair.stock_cpu for pair in pairs),
        pairs_ms=tuple((1e3 * pair.stock, 1e3 * pair.invariant) for pair in pairs),
        pairs_cpu_ms=tuple((1e3 * pair.stock_cpu, 1e3 * pair.invariant_cpu) for pair in pairs),
    )
