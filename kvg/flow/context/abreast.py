"""Blocks computed side by side, each by one thread of the processor, and taken in their order.

The model is in memory once; each block that is under way has a state of its own. A token's bits
depend on its own history alone, so they are those of one block after the other.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kvg.crew import Crew
from kvg.errors import Interrupted
from kvg.objects.page import page_size

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from kvg.flow.settings import Settings
    from kvg.model.session import Session

MOST_LANES = 8
"""Beyond that, memory is what blocks wait for."""
STATES = 2
"""A block that is under way takes about so many times its pages."""
T = TypeVar("T")


def lanes_for(settings: Settings, session: Session, block_tokens: int, n_blocks: int) -> int:
    """How many blocks of ``block_tokens`` are computed at a time: one for each of ``settings.jobs``
    on a CPU, at most eight, and no more than half of the memory that is free holds."""
    from kvg.model.threads import is_divisible

    if session.model.device.type != "cpu" or session.engine.schedule is not None:
        return 1
    if not is_divisible():
        return 1
    block_bytes = STATES * sum(page_size(group, block_tokens) for group in session.model.groups)
    return max(1, min(settings.jobs, MOST_LANES, n_blocks, _free_bytes() // 2 // block_bytes))


class Lanes:
    """Runs work in ``n`` threads that compute with one thread each; with 1, at once, with all.

    A context manager: at its end no work is under way. What was is ended before its next forward
    pass.
    """

    def __init__(self, session: Session, n: int) -> None:
        self.depth = 1 if n == 1 else 2 * n
        """How many pieces of work may be begun and not yet taken."""
        self._session = session
        self._before_pass = session.before_pass
        self._is_over = threading.Event()
        self._pool = None if n == 1 else Crew(n, name="block")

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Begin ``work``; without threads it is done when this returns."""
        if self._pool is not None:
            return self._pool.submit(_alone, work)
        done: Future[T] = Future()
        done.set_result(work())
        return done

    def __enter__(self) -> Lanes:
        if self._pool is not None:
            self._session.before_pass = self._go_on
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._session.before_pass = self._before_pass

    def _go_on(self) -> None:
        if self._is_over.is_set():
            raise Interrupted("the run ended before this block was computed")
        self._before_pass()


def _alone(work: Callable[[], T]) -> T:
    from kvg.model.threads import OneThread

    with OneThread():
        return work()


def _free_bytes() -> int:
    """Memory that the system can still give, as Linux tells it; half of all where it does not."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    except (OSError, ValueError):
        pass
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
