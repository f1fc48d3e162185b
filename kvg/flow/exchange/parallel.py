"""Work on many items at once, with back-pressure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
AHEAD = 2
"""How many items for each thread are begun before the first is taken."""

LEAST_THREADS = 4
"""Waiting for a remote takes no core."""


def in_order(work: Callable[[T], R], items: Iterable[T], *, jobs: int) -> Iterator[R]:
    """``work`` of each item, in their order; no more than ``AHEAD`` of each thread are waiting.

    The first failure is raised; what has begun is waited for, what has not is left.
    """
    threads = max(jobs, LEAST_THREADS)
    waiting: deque[Future[R]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) >= AHEAD * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
