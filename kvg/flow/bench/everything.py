"""``kvg bench all``: one run of each benchmark, at sizes that take minutes."""

from __future__ import annotations

import pydoc_data.topics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvg.flow.bench.context import ContextBenchRequest, bench_context
from kvg.flow.bench.energy import EnergyRequest, bench_energy
from kvg.flow.bench.exactness import ExactnessRequest, bench_exactness
from kvg.flow.bench.library import open_library
from kvg.flow.bench.restore import RestoreRequest, bench_restore
from kvg.flow.bench.select import SelectRequest, bench_select
from kvg.flow.bench.setup import check_declared, check_least
from kvg.flow.bench.speed import SpeedRequest, bench_speed
from kvg.flow.bench.store import StoreRequest, bench_store
from kvg.flow.registered import check_torch, registered_model

if TYPE_CHECKING:
    from kvg.flow.bench.library import Library
    from kvg.flow.records.record import Record
    from kvg.flow.settings import Settings
    from kvg.store import Store

STEPS = (256, 1000)
"""Shorter texts that are restored beside the longest."""

BLOCKS = 6
NAME = "reference"
SELECT = SelectRequest(900, 20_000, 100_000, 0, 0)


@dataclass(frozen=True, slots=True)
class EverythingRequest:
    """Each benchmark on texts of at most ``tokens`` tokens, ``repeats`` times."""

    model: str | None = None
    tokens: int = 4000
    repeats: int = 3

    def __post_init__(self) -> None:
        check_least("--tokens", self.tokens, 32)
        check_least("--repeats", self.repeats, 1)


def bench_all(store: Store, settings: Settings, request: EverythingRequest) -> Iterator[Record]:
    """Yield the records of each benchmark in turn; each begins with what it was measured on.

    Raises ``NotFound``, ``Incompatible``.
    """
    check_torch()
    check_declared(registered_model(store, request.model), request.tokens)
    model, tokens, repeats = request.model, request.tokens, request.repeats
    lengths = tuple(sorted({*(step for step in STEPS if step < tokens), tokens}))
    short = min(tokens, STEPS[-1])
    yield from bench_exactness(
        store, settings, ExactnessRequest(model, 1, (16, min(tokens, 257)), (), (1, 3))
    )
    yield from bench_restore(store, settings, RestoreRequest(model, lengths, repeats))
    yield from bench_store(store, settings, StoreRequest(model, tokens, repeats))
    with open_library(store, settings, model, ()) as library:
        yield from _context(library, short)
    yield from bench_select(settings, SELECT)
    yield from bench_energy(store, settings, EnergyRequest(model, short, 4 * repeats))
    yield from bench_speed(store, settings, SpeedRequest(model, (short,), repeats, 8))


def _context(library: Library, block_tokens: int) -> Iterator[Record]:
    """A context of a few blocks of Python's language reference, and the window moved over it."""
    from kvg.flow.context.create import ContextRequest, create_context

    folder = library.settings.cwd / NAME
    folder.mkdir()
    left = BLOCKS * block_tokens
    for name, text in sorted(pydoc_data.topics.topics.items()):
        if left <= 0:
            break
        cut = text[: library.tokenizer.prefix(text, left)]
        (folder / f"{name}.txt").write_text(cut, encoding="utf-8")
        left -= len(library.tokenizer.encode(cut))
    request = ContextRequest(NAME, (Path(NAME),), block_tokens=block_tokens, room=0)
    for _ in create_context(library.store, library.settings, request):
        pass
    yield from bench_context(library.store, library.settings, ContextBenchRequest(NAME, 60))
