"""``kvg bench store``: what storing costs over computing, what it takes on disk, and to verify."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvg.crew import Crew
from kvg.digest import sha256
from kvg.flow.bench.library import open_library
from kvg.flow.bench.measured import FORMS, Measured
from kvg.flow.bench.setup import check_least, setup_of
from kvg.flow.records.bench import StoreDeposit, StoreRow

if TYPE_CHECKING:
    from kvg.flow.records.record import Record
    from kvg.flow.settings import Settings
    from kvg.store import Store


@dataclass(frozen=True, slots=True)
class StoreRequest:
    """Deposit ``repeats`` texts of about ``length`` tokens; verify the last, in each form."""

    model: str | None = None
    length: int = 4000
    repeats: int = 3

    def __post_init__(self) -> None:
        check_least("--length", self.length, 1)
        check_least("--repeats", self.repeats, 1)


def bench_store(store: Store, settings: Settings, request: StoreRequest) -> Iterator[Record]:
    """Yield the setup, what deposits cost, and a row for each stored form.

    Raises ``NotFound``, ``Incompatible``.
    """
    with open_library(store, settings, request.model, (), n_tokens=request.length) as library:
        yield setup_of("store", library.model, library.session)
        runs = []
        for number in range(request.repeats):
            measured = Measured.of(library, request.length, request.repeats, skip=97 * number)
            made = measured.deposited
            runs.append((made.prefill_ms, made.store_ms))
        prefill_ms, store_ms = sorted(runs, key=lambda run: run[1] / run[0])[(len(runs) - 1) // 2]
        yield StoreDeposit(
            tokens=measured.verified.manifest.count,
            repeats=len(runs),
            prefill_ms=prefill_ms,
            store_ms=store_ms,
            overhead=store_ms / prefill_ms,
            runs_ms=tuple(runs),
        )
        for form, codec in FORMS:
            measured.store_as(codec)
            yield _row(measured, form)


def _row(measured: Measured, form: str) -> StoreRow:
    runs = [(_verify(measured), _sha256(measured)) for _ in range(measured.repeats)]
    verify_ms, sha256_ms = min(run[0] for run in runs), min(run[1] for run in runs)
    return StoreRow(
        tokens=measured.verified.manifest.count,
        form=form,
        repeats=len(runs),
        bytes_raw=measured.bytes_raw,
        bytes_stored=measured.bytes_stored,
        verify_ms=verify_ms,
        sha256_ms=sha256_ms,
        share=sha256_ms / verify_ms,
        runs_ms=tuple(runs),
    )


def _verify(measured: Measured) -> float:
    """Milliseconds of ``kvg verify`` of the artifact, every byte of it, inside this process."""
    from kvg.flow.verify import verify

    library, digest = measured.library, measured.verified.digest
    began = time.perf_counter()
    for _ in verify(library.store, library.settings, [digest], require=()):
        pass
    return (time.perf_counter() - began) * 1e3


def _sha256(measured: Measured) -> float:
    """Milliseconds of SHA-256 alone over the raw pages in memory, on as many threads."""
    pages = [bytes(measured.verified.read_page(page)) for page in measured.pages]
    began = time.perf_counter()
    with Crew(max(1, measured.library.settings.jobs)) as pool:
        for _ in pool.map(sha256, pages):
            pass
    return (time.perf_counter() - began) * 1e3
