"""Work on many items of a remote at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from kvg import parallel

T = TypeVar("T")
R = TypeVar("R")

LEAST_THREADS = 4
"""Waiting for a remote takes no core."""

SMALL_BYTES = 1 << 20
SMALL_THREADS = 16
"""How many of what is no larger are under way at once: nearly all of their time is waiting."""


def in_order(
    work: Callable[[T], R], items: Iterable[T], *, jobs: int, are_small: bool = False
) -> Iterator[R]:
    """See ``kvg.parallel.in_order``. ``are_small``: see ``SMALL_THREADS``."""
    least = SMALL_THREADS if are_small else LEAST_THREADS
    return parallel.in_order(work, items, threads=max(jobs, least))
