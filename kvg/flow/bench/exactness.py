"""``kvg bench exactness``: samples by lengths by threads by batch by splits, every digest kept."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, TypeAlias

from kvg.digest import sha256
from kvg.errors import UsageError
from kvg.flow.bench.setup import (
    check_listed,
    check_once,
    most_threads,
    n_processors,
    open_measured,
    setup_of,
)
from kvg.flow.records.bench import ExactnessRow, ExactnessRun, ExactnessSummary
from kvg.flow.records.record import Record
from kvg.flow.registered import check_torch
from kvg.flow.settings import Settings
from kvg.objects.tokens import encode_ids

if TYPE_CHECKING:
    from kvg.model.session import Session
    from kvg.store import Store

SAMPLES = 3
LENGTHS = (16, 255, 256, 257)
BATCHES = (1, 3)
KNOWN_SPLITS = ("one-shot", "halves", "pieces", "tokens", "graft")

Job: TypeAlias = tuple[int, int]
"""A sample's number and its length."""


@dataclass(frozen=True, slots=True)
class ExactnessRequest:
    """Compute ``samples`` texts of each of ``lengths`` tokens in every way that must not matter.

    ``threads`` empty means one and all. Of ``batches`` more than there are texts become that many.
    """

    model: str | None = None
    samples: int = SAMPLES
    lengths: tuple[int, ...] = LENGTHS
    threads: tuple[int, ...] = ()
    batches: tuple[int, ...] = BATCHES
    splits: tuple[str, ...] = KNOWN_SPLITS

    def __post_init__(self) -> None:
        named = {"--lengths": self.lengths, "--threads": self.threads, "--batch": self.batches}
        for option, values in {**named, "--samples": (self.samples,)}.items():
            check_listed(option, values)
        texts = self.samples * len(self.lengths)
        possible = dict.fromkeys(min(size, texts) for size in self.batches)
        object.__setattr__(self, "batches", tuple(possible))
        if max(self.threads, default=1) > most_threads():
            raise UsageError(
                f"--threads {max(self.threads)}: more than {most_threads()} on {n_processors()} "
                "processors",
                hint="more threads than processors wait for each other; give fewer",
            )
        if not self.lengths or not self.batches or not self.splits:
            raise UsageError("bench exactness: nothing to do", hint="kvg bench exactness --help")
        check_once("--splits", self.splits)
        for split in self.splits:
            if split not in KNOWN_SPLITS:
                raise UsageError(f"--splits {split}: unknown", hint=", ".join(KNOWN_SPLITS))


def bench_exactness(
    store: Store, settings: Settings, request: ExactnessRequest
) -> Iterator[Record]:
    """Yield the setup, one ``ExactnessRun`` for each computation, a table, and a summary.

    A difference is reported, not raised: the summary's exit code says it. Raises ``NotFound``,
    ``Incompatible``.
    """
    check_torch()
    model, session = open_measured(store, settings, request.model, max(request.lengths))
    session.check_window(max(request.lengths))
    setup = setup_of("exactness", model, session)
    yield setup
    threads = request.threads or tuple(sorted({1, setup.threads}))
    began = time.perf_counter()
    rows: Counter[tuple[int, str]] = Counter()
    equal: Counter[tuple[int, str]] = Counter()
    jobs = [*product(range(request.samples), request.lengths)]
    step = max(request.batches)
    with settings.report.task("exactness", len(jobs), "texts") as task:
        for first in range(0, len(jobs), step):
            group = jobs[first : first + step]
            for run in _measured(session, group, request, threads):
                rows[run.length, run.split] += 1
                equal[run.length, run.split] += run.equal
                yield run
            task.advance(len(group))
    for length, split in product(request.lengths, request.splits):
        yield ExactnessRow(length, split, rows[length, split], equal[length, split])
    yield ExactnessSummary(
        request.samples, rows.total(), equal.total(), time.perf_counter() - began
    )


def _measured(
    session: Session, jobs: Sequence[Job], request: ExactnessRequest, threads: Sequence[int]
) -> Iterator[ExactnessRun]:
    """Every run of ``jobs``; a batch holds texts of different lengths side by side."""
    from kvg.model.exactness import made_ids, reference_run, varied_run

    texts = [made_ids(sample, length, session.model.vocabulary) for sample, length in jobs]
    expected = [reference_run(session, text) for text in texts]
    for n_threads, batch, split in product(threads, request.batches, request.splits):
        for first in range(0, len(jobs), batch):
            part = slice(first, first + batch)
            pages = [held for _, held in expected[part]]
            found = varied_run(session, texts[part], pages, split=split, threads=n_threads)
            for job, text, (fresh, _), outcome in zip(
                jobs[part], texts[part], expected[part], found, strict=True
            ):
                yield ExactnessRun(
                    sample=job[0],
                    length=job[1],
                    threads=n_threads,
                    batch=batch,
                    split=split,
                    input=sha256(encode_ids(text)),
                    logits=outcome.logits,
                    state=outcome.state,
                    expected_logits=fresh.logits,
                    expected_state=fresh.state,
                    equal=outcome == fresh,
                )
