"""``kvg bench energy``: what the first token costs by prefill and by graft, in counted joules."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvg.flow.bench.counters import counted
from kvg.flow.bench.library import open_library
from kvg.flow.bench.measured import Measured
from kvg.flow.bench.setup import check_least, setup_of
from kvg.flow.records.bench import EnergyRow

if TYPE_CHECKING:
    from kvg.flow.records.record import Record
    from kvg.flow.settings import Settings
    from kvg.store import Store


@dataclass(frozen=True, slots=True)
class EnergyRequest:
    """A text of about ``length`` tokens: one prefill, and ``runs`` grafts."""

    model: str | None = None
    length: int = 4000
    runs: int = 20

    def __post_init__(self) -> None:
        check_least("--length", self.length, 1)
        check_least("--runs", self.runs, 1)


def bench_energy(store: Store, settings: Settings, request: EnergyRequest) -> Iterator[Record]:
    """Yield the setup, and a row for the prefill and for the grafts. Raises ``NotFound``."""
    with open_library(store, settings, request.model, (), n_tokens=request.length) as library:
        yield setup_of("energy", library.model, library.session)
        measured = Measured.of(library, request.length, 1)
        manifest, session = measured.verified.manifest, library.session
        ids, count = measured.verified.ids, manifest.count

        def prefill() -> None:
            session.prefill(session.slot(), ids, [count - 1])

        def graft() -> None:
            measured.graft()

        yield _row("prefill", prefill, 1, count, count)
        yield _row("graft", graft, request.runs, count, 1)


def _row(
    way: str, work: Callable[[], None], runs: int, tokens: int, tokens_computed: int
) -> EnergyRow:
    """All of ``runs``, for one of them."""
    took = []
    with counted() as energy:
        for _ in range(runs):
            wall, cpu = time.perf_counter(), time.process_time()
            work()
            took.append(((time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3))
    return EnergyRow(
        way=way,
        tokens=tokens,
        tokens_computed=tokens_computed,
        runs=runs,
        seconds=sum(run[0] for run in took) / runs / 1e3,
        cpu_seconds=sum(run[1] for run in took) / runs / 1e3,
        joules=None if energy.joules is None else energy.joules / runs,
        counter=energy.counter,
        runs_ms=tuple(took),
    )
