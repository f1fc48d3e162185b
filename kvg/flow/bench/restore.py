"""``kvg bench restore``: graft and first token against cold prefill, and where the time goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvg.errors import NotFound, UsageError
from kvg.flow.bench.library import open_library
from kvg.flow.bench.measured import CACHES, FORMS, Measured
from kvg.flow.bench.peers import peers
from kvg.flow.bench.setup import check_least, check_listed, setup_of
from kvg.flow.bench.stages import stages
from kvg.flow.records.bench import RestoreRow, RestoreSummary

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.flow.records.record import Record
    from kvg.flow.settings import Settings
    from kvg.store import Store

LENGTHS = (256, 1000, 4000, 7900)
REPEATS = 5


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """Graft texts of about each of ``lengths`` tokens ``repeats`` times in every way.

    ``gguf`` is the same model for llama.cpp, to stand beside.
    """

    model: str | None = None
    lengths: tuple[int, ...] = LENGTHS
    repeats: int = REPEATS
    gguf: Path | None = None

    def __post_init__(self) -> None:
        check_listed("--lengths", self.lengths)
        check_least("--repeats", self.repeats, 1)
        if not self.lengths:
            raise UsageError("--lengths: none", hint="kvg bench restore --help")


def bench_restore(store: Store, settings: Settings, request: RestoreRequest) -> Iterator[Record]:
    """Yield the setup, a row for each length, form and cache, stages and peers of the longest.

    At the end a summary.
    The texts are Python's own language reference, deposited into a store that goes afterwards.
    Raises ``NotFound``, ``Incompatible``.
    """
    gguf = None if request.gguf is None else settings.cwd / request.gguf
    if gguf is not None and not gguf.is_file():
        raise NotFound(f"{request.gguf}: no such file", hint="--gguf FILE is for llama.cpp")
    longest = max(request.lengths)
    with open_library(store, settings, request.model, (), n_tokens=longest) as library:
        yield setup_of("restore", library.model, library.session)
        rows: list[RestoreRow] = []
        for length in sorted(set(request.lengths)):
            measured = Measured.of(library, length, request.repeats)
            for form, codec in FORMS:
                measured.store_as(codec)
                for cache in CACHES:
                    rows.append(measured.row(form, cache))
                    yield rows[-1]
                if length == max(request.lengths):
                    yield from stages(measured, form)
        yield from peers(measured, gguf)
        of_longest = [row for row in rows if row.tokens == rows[-1].tokens]
        factors = {(row.form, row.cache): row.factor for row in of_longest}
        yield RestoreSummary(
            tokens=rows[-1].tokens,
            factor_raw=factors["raw", "warm"],
            factor_planes=factors["planes", "warm"],
            factor_raw_kept=factors["raw", "kept"],
            factor_planes_kept=factors["planes", "kept"],
            exact=all(row.exact for row in rows),
        )
