"""Memory that work of one thread uses again and again."""

from __future__ import annotations

import threading


class Buffers:
    """Buffers by name, each as large as was ever asked for. For one user at a time.

    Memory that a system gives out is made zero page by page as it is first touched, which takes
    longer than to fill it; so what is wanted often is kept.
    """

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[str, memoryview] = {}

    def take(self, name: str, n_bytes: int) -> memoryview:
        """``n_bytes`` that hold anything; those taken before under ``name`` may be the same."""
        held = self._held.get(name)
        if held is None or held.nbytes < n_bytes:
            held = self._held[name] = memoryview(bytearray(n_bytes))
        return held[:n_bytes]


class PerThread(threading.local):
    """Buffers that each thread has for its own, as long as this lives."""

    def __init__(self) -> None:
        self.buffers = Buffers()
