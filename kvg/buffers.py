"""Memory that a thread uses again and again, placed where a file is copied to fast."""

from __future__ import annotations

import mmap
import threading

_OWN = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
"""A child's writes stay its own."""


class Buffers(threading.local):
    """Buffers by name, each as large as was ever asked for; every thread that asks has its own.

    Memory that a system gives out is made zero page by page as it is first touched, which takes
    longer than to fill it; so what is wanted often is kept, as long as this and the thread live.
    """

    def __init__(self) -> None:
        self._held: dict[str, memoryview] = {}

    def take(self, name: str, n_bytes: int, *, at: int = 0) -> memoryview:
        """``n_bytes`` that hold anything; those taken before under ``name`` may be the same.

        They begin in a page of memory where position ``at`` begins in a page of a file: what is
        read from there moves without a shift, which would slow the system's copy down.
        """
        first = at % mmap.PAGESIZE
        held = self._held.get(name)
        if held is None or held.nbytes < first + n_bytes:
            whole = -(-(first + n_bytes) // mmap.PAGESIZE) * mmap.PAGESIZE
            own = mmap.mmap(-1, max(whole, mmap.PAGESIZE), flags=_OWN)
            held = self._held[name] = memoryview(own)
        return held[first : first + n_bytes]
