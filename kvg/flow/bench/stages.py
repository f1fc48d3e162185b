"""Where the time of a restore goes: each stage alone, what verifying costs, and what adds up."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from kvg import durable
from kvg.buffers import Buffers
from kvg.digest import Blake3Stream, blake3_bytes
from kvg.errors import Bug, Corrupt
from kvg.flow.bench.measured import Measured
from kvg.flow.records.bench import RestorePart, RestoreStage, RestoreVerified
from kvg.objects.page import data_start
from kvg.parallel import in_order

if TYPE_CHECKING:
    from kvg.codec import PieceReader
    from kvg.codec.planes import Target
    from kvg.model.placing import Placing
    from kvg.model.session import Slot
    from kvg.objects.manifest import Page

    Work = Callable[[Page], None]

Times = tuple[tuple[float, float], ...]


def stages(measured: Measured, form: str) -> Iterator[RestoreStage | RestoreVerified | RestorePart]:
    """Each stage alone and the restore, by one thread and by all; then the parts of one thread."""
    from kvg.model.versions import compute_threads

    slot = measured.library.session.slot()
    measured.library.session.restore(slot, measured.verified)
    bench = _Stages(measured, form, slot)
    for threads in sorted({1, compute_threads()}):
        yield from bench.rows(threads)
    if bench.is_straight:
        yield from bench.parts()


@dataclass(slots=True)
class _Clock:
    """Seconds that were spent at each part."""

    spent: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def at(self, part: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.spent[part] = self.spent.get(part, 0.0) + time.perf_counter() - began


def _kept(data: bytes) -> memoryview:
    """``data`` where a file is read to fastest."""
    view = Buffers().take("file", len(data))
    view[:] = data
    return view


@dataclass(frozen=True, slots=True)
class _Stages:
    measured: Measured
    form: str
    slot: Slot

    @property
    def is_straight(self) -> bool:
        """Whether pages go straight to their places, as they do in this process's own memory."""
        page = self.measured.pages[0]
        group = self.measured.verified.manifest.group(page.group)
        return self.slot.state.placing(group, page.start, page.end) is not None

    def rows(self, threads: int) -> Iterator[RestoreStage | RestoreVerified]:
        """The stages that no restore can do without, and the restore against the slowest."""
        work = self._work()
        found = {
            stage: self._timed(partial(self._all, run, threads)) for stage, run in work.items()
        }
        slowest = max(_least(runs_ms)[0] for runs_ms in found.values())
        whole = {"restore": partial(self._restore, threads)}
        if self.is_straight:
            whole["unverified"] = partial(self._all, partial(self._unverified, Buffers()), threads)
        found |= dict(zip(whole, self._in_turns(*whole.values()), strict=True))
        for stage, runs_ms in found.items():
            ms, cpu_ms = _least(runs_ms)
            yield RestoreStage(
                tokens=self.measured.verified.manifest.count,
                form=self.form,
                stage=stage,
                threads=threads,
                repeats=self.measured.repeats,
                bytes=self.measured.bytes_raw,
                ms=ms,
                cpu_ms=cpu_ms,
                share=slowest / ms if stage == "restore" else None,
                runs_ms=runs_ms,
            )
        if not self.is_straight:
            return
        verified_ms, unverified_ms = _least(found["restore"])[0], _least(found["unverified"])[0]
        yield RestoreVerified(
            tokens=self.measured.verified.manifest.count,
            form=self.form,
            threads=threads,
            verified_ms=verified_ms,
            unverified_ms=unverified_ms,
            cost=verified_ms / unverified_ms - 1,
        )

    def parts(self) -> Iterator[RestorePart]:
        """The quickest of all runs by one thread, taken apart. The parts are all of the time."""
        runs = [self._apart() for _ in range(self.measured.repeats)]
        best = min(runs, key=lambda run: sum(run.values()))
        total = sum(best.values())
        for part, seconds in (*best.items(), ("total", total)):
            yield RestorePart(
                tokens=self.measured.verified.manifest.count,
                form=self.form,
                part=part,
                ms=seconds * 1e3,
                share=seconds / total,
            )

    def _apart(self) -> dict[str, float]:
        """One restore, in the steps of ``Verified.give_page`` with a clock at each."""
        from kvg.model.planes import join_planes

        clock = _Clock()

        def join(planes: Sequence[memoryview], out: Target, n_bytes: int) -> None:
            with clock.at("join planes"):
                join_planes(planes, out, n_bytes)

        buffers = Buffers()
        began = time.perf_counter()
        for page in self.measured.pages:
            placing, left = self._placing(page)
            stream = Blake3Stream()
            with self._opened(page, clock) as reader:
                pieces = reader.pieces(join, first=left, most=placing.piece_bytes, buffers=buffers)
                while True:
                    with clock.at("pieces"):
                        piece = next(pieces, None)
                    if piece is None:
                        break
                    with clock.at("hash"):
                        stream.update(piece)
                    skipped = min(left, piece.nbytes)
                    left -= skipped
                    with clock.at("place"):
                        placing.put(piece[skipped:])
            if stream.digest().hex() != page.blake3:
                raise Corrupt(f"page {page.digest}: bytes do not match their BLAKE3")
        total, spent = time.perf_counter() - began, clock.spent
        joined, read = spent.get("join planes", 0.0), spent["read"]
        found = {"read": read}
        if joined:
            found |= {"inflate": spent["pieces"] - read - joined, "join planes": joined}
        found |= {"hash": spent["hash"], "place": spent["place"]}
        return {**found, "rest": total - sum(found.values())}

    @contextmanager
    def _opened(self, page: Page, clock: _Clock) -> Iterator[PieceReader]:
        """The page's pieces, with a clock at the calls of the system."""
        from kvg import codec as kvz

        path = self.measured.library.store.objects.stored_path(page.digest)
        with durable.translated(path), open(path, "rb", buffering=0) as file:

            def read_into(buffer: memoryview, position: int) -> int:
                with clock.at("read"):
                    return os.preadv(file.fileno(), [buffer], position)

            yield kvz.open_pieces(
                read_into,
                os.fstat(file.fileno()).st_size,
                digest=page.digest,
                size=page.size,
                what="bench",
            )

    def _work(self) -> dict[str, Work]:
        """What no restore can do without, each on what the one before it leaves in memory."""
        from kvg import codec as kvz
        from kvg.model.planes import join_planes
        from kvg.model.state import place_page

        measured = self.measured
        objects = measured.library.store.objects
        own = Buffers()
        raws = {page: bytearray(measured.verified.read_page(page)) for page in measured.pages}
        stored = {
            page: _kept(objects.read_stored(page.digest, what="bench")) for page in measured.pages
        }

        def read(page: Page) -> None:
            path = objects.stored_path(page.digest)
            with durable.translated(path), open(path, "rb", buffering=0) as file:
                file.readinto(stored[page])

        def hashed(page: Page) -> None:
            blake3_bytes(raws[page])

        def copy(page: Page) -> None:
            if self.is_straight:
                placing, head = self._placing(page)
                placing.put(memoryview(raws[page])[head:])
            else:
                group = measured.verified.manifest.group(page.group)
                place_page(self.slot.state, group, page.start, page.end, raws[page])

        def decode(page: Page) -> None:
            data = stored[page]

            def read_into(buffer: memoryview, position: int) -> int:
                piece = data[position : position + buffer.nbytes]
                buffer[: piece.nbytes] = piece
                return piece.nbytes

            reader = kvz.open_pieces(
                read_into, data.nbytes, digest=page.digest, size=page.size, what="bench"
            )
            for _ in reader.pieces(join_planes, buffers=own):
                pass

        work: dict[str, Work] = {"read": read, "hash": hashed, "copy": copy}
        return work if self.form == "raw" else {**work, "decode": decode}

    def _unverified(self, own: Buffers, page: Page) -> None:
        """As a restore does it, but for the hash."""
        from kvg.model.planes import join_planes

        objects = self.measured.library.store.objects
        placing, left = self._placing(page)
        with objects.open_pieces(page.digest, size=page.size, what="bench") as reader:
            most = placing.piece_bytes
            for piece in reader.pieces(join_planes, first=left, most=most, buffers=own):
                skipped = min(left, piece.nbytes)
                left -= skipped
                placing.put(piece[skipped:])

    def _placing(self, page: Page) -> tuple[Placing, int]:
        """What puts the page where it belongs, and the bytes of its header."""
        group = self.measured.verified.manifest.group(page.group)
        placing = self.slot.state.placing(group, page.start, page.end)
        if placing is None:
            raise Bug("bench: a state that is not in this process's own memory")
        return placing, data_start(group, page.n_tokens)

    def _restore(self, threads: int) -> None:
        from kvg.model.session import pinned_threads

        self.slot.truncate(0)
        with pinned_threads(threads):
            self.measured.library.session.restore(self.slot, self.measured.verified)

    def _all(self, run: Work, threads: int) -> None:
        for _ in in_order(run, self.measured.pages, threads=threads):
            pass

    def _timed(self, run: Callable[[], None]) -> Times:
        """Milliseconds of each repeat: by the clock, and of processor time."""
        return self._in_turns(run)[0]

    def _in_turns(self, *runs: Callable[[], None]) -> tuple[Times, ...]:
        """As ``_timed`` of each, one after the other in every repeat."""
        found: tuple[list[tuple[float, float]], ...] = tuple([] for _ in runs)
        for _ in range(self.measured.repeats):
            for run, times in zip(runs, found, strict=True):
                wall, cpu = time.perf_counter(), time.process_time()
                run()
                ended = time.perf_counter()
                times.append(((ended - wall) * 1e3, (time.process_time() - cpu) * 1e3))
        return tuple(tuple(times) for times in found)


def _least(runs_ms: Times) -> tuple[float, float]:
    """The least by the clock, and the least of processor time."""
    return min(wall for wall, _ in runs_ms), min(cpu for _, cpu in runs_ms)
