"""Requests that compute: in the order of asking, cancelled when nobody wants the answer."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from kvg import durable
from kvg.errors import Bug, Interrupted, KvgError, NoSpace, RemoteFailed
from kvg.flow.records.record import Record
from kvg.flow.resident import Resident, Seat
from kvg.flow.settings import Settings, open_store
from kvg.frozen import frozen
from kvg.report import SilentTask

if TYPE_CHECKING:
    from kvg.store import Store

MOST_WAITING = 512
"""Requests that may wait; more are refused, and may come again."""
log = logging.getLogger("kvg.serve")


@frozen
class Notice:
    """What a flow told beside its result: ``kind`` is notice or warning."""

    kind: str
    text: str


Item: TypeAlias = Record | Notice | KvgError
Flow: TypeAlias = "Callable[[Store, Settings], Iterator[Record]]"


class Job:
    """One request: what it yields, and whether it is still wanted."""

    def __init__(self, number: int, what: str, flow: Flow, index: int | None) -> None:
        self.number = number
        self.what = what
        self.flow = flow
        self.index = index
        self.cancelled = threading.Event()
        self.began = time.monotonic()
        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[Item | None] = asyncio.Queue()

    def put(self, item: Item | None) -> None:
        """Hand on one item; None is the end. Called by any thread."""
        self._loop.call_soon_threadsafe(self._items.put_nowait, item)

    async def items(self) -> AsyncIterator[Item]:
        """What the job yields, as it comes."""
        while (item := await self._items.get()) is not None:
            yield item


class JobReport:
    """A report whose notices go to whoever asked."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def notice(self, text: str) -> None:
        self._job.put(Notice("notice", text))

    def warning(self, text: str) -> None:
        self._job.put(Notice("warning", text))

    def task(self, label: str, total: int, unit: str) -> SilentTask:
        return SilentTask()


class Desk:
    """Takes requests for one resident model; ``parallel`` of them are under way at a time.

    They begin in the order of asking, those for one numbered slot one after the other. Those under
    way take turns at the model.
    """

    def __init__(self, resident: Resident, settings: Settings, *, parallel: int) -> None:
        self.resident = resident
        self.jobs: set[Job] = set()
        self.done = 0
        self.is_stopping = False
        self.last_used = time.monotonic()
        self._settings = settings
        self._pool = ThreadPoolExecutor(parallel, thread_name_prefix="job")
        self._slots: dict[int, asyncio.Lock] = {}
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(
        self,
        what: str,
        flow: Flow,
        *,
        index: int | None = None,
        changes: Mapping[str, object] | None = None,
    ) -> Job:
        """Queue ``flow``. ``changes`` are settings of this request. Raises ``RemoteFailed``."""
        if self.is_stopping:
            raise self._stopped()
        if len(self.jobs) >= MOST_WAITING:
            raise RemoteFailed(
                f"session {self.resident.name}: {len(self.jobs)} requests wait already",
                hint="try again later",
            )
        if index is not None:
            self.resident.check_index(index)
        job = Job(next(self._numbers), what, flow, index)
        self.jobs.add(job)
        task = asyncio.create_task(self._run(job, replace(self._settings, **(changes or {}))))  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return job

    def stop(self) -> None:
        """Take no more, and end what is under way before its next forward pass."""
        self.is_stopping = True
        for job in self.jobs:
            job.cancelled.set()

    async def close(self) -> None:
        """Wait for everything that was under way."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))
        self._pool.shutdown()

    async def _run(self, job: Job, settings: Settings) -> None:
        lock = None if job.index is None else self._slots.setdefault(job.index, asyncio.Lock())
        try:
            async with lock or nullcontext():
                loop = asyncio.get_running_loop()
                outcome = await loop.run_in_executor(self._pool, self._work, job, settings)
        finally:
            self.jobs.discard(job)
            self.done += 1
            self.last_used = time.monotonic()
        took_ms = (time.monotonic() - job.began) * 1e3
        log.info("%d %s: %s in %.0f ms", job.number, job.what, outcome, took_ms)

    def _work(self, job: Job, settings: Settings) -> str:
        """Run one job in a thread of the pool, to its end. Returns how it ended."""
        try:
            self._yield_all(job, settings)
        except Interrupted as error:
            job.put(self._stopped() if self.is_stopping else error)
            return "cancelled"
        except KvgError as error:
            job.put(error)
            return f"{error.kind}: {error.message}"
        except Exception as error:  # one request's boundary: the session goes on
            told = _foreign(error)
            log.error("%d %s failed", job.number, job.what, exc_info=error)
            job.put(told)
            return told.kind
        finally:
            job.put(None)
        return "done"

    def _yield_all(self, job: Job, settings: Settings) -> None:
        with self.resident.turns.held(job.cancelled), Seat(self.resident, job.index) as seat:
            given = replace(settings, seat=seat, report=JobReport(job))
            with closing(_generator(job.flow(open_store(given), given))) as records:
                for record in records:
                    job.put(record)

    def _stopped(self) -> RemoteFailed:
        name = self.resident.name
        return RemoteFailed(
            f"session {name}: stopped before this was done", hint=f"kvg session start {name}"
        )


def _generator(records: Iterator[Record]) -> Generator[Record]:
    yield from records


def _foreign(error: Exception) -> KvgError:
    """What an exception that is not kvg's own means to whoever asked."""
    if isinstance(error, MemoryError):
        return NoSpace("out of memory", hint="start the session with a smaller --memory")
    if isinstance(error, OSError) and error.errno is not None:
        try:
            durable.raise_translated(error, error.filename or "input or output")
        except KvgError as translated:
            return translated
    return Bug(
        f"unexpected {type(error).__name__}: {error}", hint="the session's log has the traceback"
    )
