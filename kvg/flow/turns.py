"""Turns at one model: threads that compute one after the other, in the order of asking."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from kvg.errors import Interrupted


class Turns:
    """One thread at a time holds the turn; who waits gets it in the order of asking.

    A holder passes the turn on before each forward pass, so that long work and short work go on
    side by side and nobody waits for more than one pass of each that came before. All else in a
    thread that holds the turn happens as in a program of one thread.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._is_held = False
        self._holder = threading.Event()

    @contextmanager
    def held(self, cancelled: threading.Event) -> Iterator[None]:
        """Hold the turn for the time of the block, but for where it is passed on.

        Raises ``Interrupted``, also out of ``pass_on``, once ``cancelled`` is set.
        """
        self._take(cancelled)
        try:
            _check(cancelled)
            yield
        finally:
            self._give()

    def pass_on(self) -> None:
        """Let everyone who waits go first. Called by the holder alone."""
        cancelled = self._holder
        self._give()
        self._take(cancelled)
        _check(cancelled)

    @contextmanager
    def away(self) -> Iterator[None]:
        """Let others compute for the time of the block. Called by the holder alone."""
        cancelled = self._holder
        self._give()
        try:
            yield
        finally:
            self._take(cancelled)

    def _take(self, cancelled: threading.Event) -> None:
        with self._guard:
            is_free, self._is_held = not self._is_held, True
            mine = threading.Event()
            if not is_free:
                self._waiting.append(mine)
        if not is_free:
            mine.wait()
        self._holder = cancelled

    def _give(self) -> None:
        """To the first who waits; while it is handed over nobody else can take it."""
        with self._guard:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._is_held = False


def _check(cancelled: threading.Event) -> None:
    if cancelled.is_set():
        raise Interrupted("cancelled: whoever asked for it went away, or the session was stopped")
