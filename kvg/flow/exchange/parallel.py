"""Work on many items of a remote at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from kvg import parallel

T = TypeVar("T")
R = TypeVar("R")

LEAST_THREADS = 4
"""Waiting for a remote takes no core."""


def in_order(work: Callable[[T], R], items: Iterable[T], *, jobs: int) -> Iterator[R]:
    """See ``kvg.parallel.in_order``."""
    return parallel.in_order(work, items, threads=max(jobs, LEAST_THREADS))
