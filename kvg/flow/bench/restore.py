"""``kvg bench restore``: graft and first token against cold prefill, and where the time goes."""

from __future__ import annotations

import os
import pydoc_data.topics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from kvg.digest import blake3_bytes
from kvg.errors import UsageError
from kvg.flow.bench.library import Library, open_library
from kvg.flow.bench.setup import setup_of
from kvg.flow.records.bench import RestoreOther, RestoreRow, RestoreStage, RestoreSummary
from kvg.flow.requests import DepositRequest
from kvg.objects.page import DTYPE_SIZES, data_start
from kvg.parallel import in_order

if TYPE_CHECKING:
    from kvg.digest import Digest
    from kvg.flow.records.record import Record
    from kvg.flow.settings import Settings
    from kvg.model.session import Slot
    from kvg.objects.manifest import Page
    from kvg.objects.verified import Verified
    from kvg.store import Store

LENGTHS = (256, 1000, 4000, 7900)
REPEATS = 5
FORMS = (("raw", 0), ("planes", 2))


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """Graft texts of about each of ``lengths`` tokens ``repeats`` times in every way."""

    model: str | None = None
    lengths: tuple[int, ...] = LENGTHS
    repeats: int = REPEATS

    def __post_init__(self) -> None:
        if not self.lengths or min(*self.lengths, self.repeats, self.repeats) < 1:
            raise UsageError("bench restore: a number is less than 1", hint="kvg bench --help")


def bench_restore(store: Store, settings: Settings, request: RestoreRequest) -> Iterator[Record]:
    """Yield the setup, a row for each length, form and cache, the stages of the longest, a summary.

    The texts are Python's own language reference, deposited into a store that goes afterwards.
    Raises ``NotFound``, ``Incompatible``.
    """
    with open_library(store, settings, request.model, ()) as library:
        yield setup_of("restore", library.model, library.session)
        library.session.check_window(max(request.lengths))
        rows: list[RestoreRow] = []
        for length in sorted(set(request.lengths)):
            measured = Measured.of(library, length, request.repeats)
            for form, codec in FORMS:
                measured.store_as(codec)
                for cache in ("warm", "cold"):
                    rows.append(measured.row(form, cache))
                    yield rows[-1]
                if length == max(request.lengths):
                    yield from measured.stages(form)
        yield from _others(library, measured)
        warm = {row.form: row for row in rows[-4:] if row.cache == "warm"}
        yield RestoreSummary(
            tokens=rows[-1].tokens,
            factor_raw=warm["raw"].factor,
            factor_planes=warm["planes"].factor,
            exact=all(row.exact for row in rows),
        )


@dataclass(frozen=True, slots=True)
class Measured:
    """One deposited text, the time of its prefill, and the first token of that."""

    library: Library
    digest: Digest
    verified: Verified
    repeats: int
    prefill_ms: float
    token: int

    @classmethod
    def of(cls, library: Library, length: int, repeats: int) -> Measured:
        from kvg.model.session import lowest_maximum
        from kvg.verify import verify_artifact

        topics = pydoc_data.topics.topics
        text = "\n".join(topics[name] for name in sorted(topics))[: 12 * length + 64]
        text = text[: library.tokenizer.prefix(text, length)]
        request = DepositRequest(f"text-{length}", text=text)
        from kvg.flow.deposit import deposit

        digest = deposit(library.store, library.settings, request).digest
        verified = verify_artifact(library.store, digest)
        session, last = library.session, verified.manifest.count - 1
        began = time.perf_counter()
        logits = session.prefill(session.slot(), verified.ids, [last]).logits[last]
        token = lowest_maximum(logits)
        prefill_ms = (time.perf_counter() - began) * 1e3
        return cls(library, digest, verified, repeats, prefill_ms, token)

    @property
    def pages(self) -> tuple[Page, ...]:
        return self.verified.manifest.pages

    @property
    def bytes_raw(self) -> int:
        return sum(page.size for page in self.pages)

    def store_as(self, codec: int) -> None:
        """Put every page in the stored form of ``codec``, under the same digests."""
        objects = self.library.store.objects
        for page in self.pages:
            group = self.verified.manifest.group(page.group)
            raw = bytes(self.verified.read_page(page))
            objects.remove(page.digest)
            objects.put(
                raw,
                digest=page.digest,
                data_start=data_start(group, page.n_tokens),
                element=DTYPE_SIZES[group.dtype],
                codec=codec,
            )

    def row(self, form: str, cache: str) -> RestoreRow:
        """Grafts as ``kvg graft`` does them: verify, restore, prove by the witness, choose."""
        runs = []
        for number in range(self.repeats + 1):
            if cache == "cold":
                self._drop()
            runs.append(self.graft())
            if number == 0 and cache == "warm":
                runs.clear()  # the first one fills the cache
        objects = self.library.store.objects
        first_token_ms = median(run[2] for run in runs)
        return RestoreRow(
            tokens=self.verified.manifest.count,
            form=form,
            cache=cache,
            repeats=len(runs),
            bytes_raw=self.bytes_raw,
            bytes_stored=sum(objects.stored_size(page.digest) for page in self.pages),
            prefill_ms=self.prefill_ms,
            verify_ms=median(run[0] for run in runs),
            restore_ms=median(run[1] for run in runs),
            first_token_ms=first_token_ms,
            factor=self.prefill_ms / first_token_ms,
            exact=all(run[3] for run in runs),
            runs_ms=tuple(run[:3] for run in runs),
        )

    def graft(self) -> tuple[float, float, float, bool]:
        """Milliseconds to verify, to restore and to the first token; whether that is the right one.

        A witness that is not met is raised.
        """
        from kvg.model.session import lowest_maximum
        from kvg.verify import verify_artifact

        session = self.library.session
        began = time.perf_counter()
        verified = verify_artifact(self.library.store, self.digest)
        checked = time.perf_counter()
        slot = session.slot()
        session.restore(slot, verified)
        restored = time.perf_counter()
        proof, logits = session.resume(slot, verified.ids[-1], ())
        session.check_witness(verified, verified.manifest.witnesses[-1], proof)
        token = lowest_maximum(logits)
        ended = time.perf_counter()
        times = (checked - began, restored - checked, ended - began)
        return (times[0] * 1e3, times[1] * 1e3, times[2] * 1e3, token == self.token)

    def _drop(self) -> None:
        """Have the system forget the pages' files."""
        for page in self.pages:
            fd = os.open(self.library.store.objects.stored_path(page.digest), os.O_RDONLY)
            try:
                os.fsync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)

    def stages(self, form: str) -> Iterator[RestoreStage]:
        """Each stage alone, by one thread and by all."""
        from kvg.model.versions import compute_threads

        slot = self.library.session.slot()
        self.library.session.restore(slot, self.verified)
        work = self._work(slot, form)
        for threads in sorted({1, compute_threads()}):
            found = {
                stage: self._timed(partial(_all, run, self.pages, threads))
                for stage, run in work.items()
            }
            slowest = max(_least(found[stage])[0] for stage in work if stage != "unverified")
            slot.truncate(0)
            found["restore"] = self._timed(partial(self._restore, slot, threads))
            for stage, runs_ms in found.items():
                ms, cpu_ms = _least(runs_ms)
                share = slowest / ms if stage == "restore" else None
                yield RestoreStage(
                    tokens=self.verified.manifest.count,
                    form=form,
                    stage=stage,
                    threads=threads,
                    repeats=self.repeats,
                    bytes=self.bytes_raw,
                    ms=ms,
                    cpu_ms=cpu_ms,
                    share=share,
                    runs_ms=runs_ms,
                )

    def _restore(self, slot: Slot, threads: int) -> None:
        from kvg.model.session import pinned_threads

        slot.truncate(0)
        with pinned_threads(threads):
            self.library.session.restore(slot, self.verified)

    def _timed(self, run: Callable[[], None]) -> tuple[tuple[float, float], ...]:
        """Milliseconds of each repeat: by the clock, and of processor time."""
        runs = []
        for _ in range(self.repeats):
            wall, cpu = time.perf_counter(), time.process_time()
            run()
            ended = time.perf_counter()
            runs.append(((ended - wall) * 1e3, (time.process_time() - cpu) * 1e3))
        return tuple(runs)

    def _work(self, slot: Slot, form: str) -> dict[str, Callable[[Page], None]]:
        from kvg.model.planes import join_planes
        from kvg.model.state import place_page
        from kvg.objects.verified import scatter

        objects = self.library.store.objects
        raws = {page: bytearray(self.verified.read_page(page)) for page in self.pages}
        stored = {page: objects.read_stored(page.digest, what="bench") for page in self.pages}

        def read(page: Page) -> None:
            objects.read_stored(page.digest, what="bench")

        def hashed(page: Page) -> None:
            blake3_bytes(raws[page])

        def copy(page: Page) -> None:
            group = self.verified.manifest.group(page.group)
            place_page(slot.state, group, page.start, page.end, raws[page])

        def decode(page: Page) -> None:
            from kvg import codec as kvz

            kvz.decode(
                stored[page],
                digest=page.digest,
                size=page.size,
                what="bench",
                check_digest=False,
            )

        def unverified(page: Page) -> None:
            group = self.verified.manifest.group(page.group)
            targets = list(reversed(slot.state.targets(group, page.start, page.end) or ()))
            left = data_start(group, page.n_tokens)
            with objects.open_pieces(page.digest, size=page.size, what="bench") as reader:
                for piece in reader.pieces(join_planes):
                    skipped = min(left, piece.nbytes)
                    left -= skipped
                    scatter(piece[skipped:], targets)

        common = {"read": read, "hash": hashed, "copy": copy}
        return {**common, **({"unverified": unverified} if form == "raw" else {"decode": decode})}


def _others(library: Library, measured: Measured) -> Iterator[RestoreOther]:
    """The longest text as users of transformers keep it: read back, and a token after it."""
    from kvg.model.dtypes import tensor_digest
    from kvg.model.foreign_cache import WAYS, KeptCache
    from kvg.model.speed import StockModel

    model, session = library.model, library.session
    stock = StockModel(model.path, model.dtype, session.model.device, model.adapter)
    for number, way in enumerate(WAYS):
        path = library.settings.cwd / f"other-{number}"
        kept = KeptCache(stock, measured.verified.ids, path, way)
        size, times, same = path.stat().st_size, [], True
        for _ in range(measured.repeats + 1):
            began = time.perf_counter()
            logits = kept.restored()
            logits.argmax().item()
            times.append((time.perf_counter() - began) * 1e3)
            same = same and tensor_digest(logits) == tensor_digest(kept.fresh)
        yield RestoreOther(
            tokens=measured.verified.manifest.count,
            way=way,
            repeats=measured.repeats,
            bytes_stored=size,
            first_token_ms=median(times[1:]),
            notices_damage=kept.notices_a_flipped_bit(),
            exact=same,
            runs_ms=tuple(times[1:]),
        )


def _least(runs_ms: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The least by the clock, and the least of processor time."""
    return min(wall for wall, _ in runs_ms), min(cpu for _, cpu in runs_ms)


def _all(run: Callable[[Page], None], pages: Sequence[Page], threads: int) -> None:
    for _ in in_order(run, pages, threads=threads):
        pass
