"""Work on many items by several threads, with back-pressure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
R = TypeVar("R")
MOST_THREADS = 256
"""More than this is taken for a mistake."""
AHEAD = 2
"""How many items for each thread are begun before the first is taken."""


def writers(jobs: int) -> int:
    """How many threads write files where ``jobs`` may compute: one waits for the disk, another
    works. One job is one thread, which does things in their order."""
    return 2 * jobs if jobs > 1 else 1


def in_order(work: Callable[[T], R], items: Iterable[T], *, threads: int) -> Iterator[R]:
    """``work`` of each item, in their order; no more than ``AHEAD`` of each thread are waiting.

    One thread works as ``map`` does, and so does this where no thread can be started. The first
    failure is raised; what has begun is waited for, what has not is left.
    """
    if threads <= 1:
        yield from map(work, items)
        return
    from kvg.crew import Crew

    waiting: deque[Future[R]] = deque()
    pool = Crew(threads)
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) >= AHEAD * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
