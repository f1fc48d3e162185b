"""The least that a place has to give in a time: what is slower can hold nobody for ever."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator

MIN_BYTES_PER_S = 1024
WINDOW_S = 30.0
"""A body that comes more slowly than ``MIN_BYTES_PER_S`` over this time is given up."""

BODY_WINDOW_S = 120.0
"""The same for a whole body with its repeated tries; a place may think before the first byte."""


LEAST_WAITS = 3
"""No fewer waits than this make a place too slow."""


class TooSlow(TimeoutError):
    """A place gave next to nothing for long. Trying again would only wait again."""


class Pace:
    """How much came in the time that it was waited for; the time of who reads does not count."""

    def __init__(self, window_s: float | None = None) -> None:
        self._window_s = window_s
        self._waited_s = 0.0
        self._n_bytes = 0

    def add(self, n_bytes: int, waited_s: float) -> None:
        """``n_bytes`` came after ``waited_s``. Raises ``TooSlow``.

        One wait counts for a part of the window at most: who was stopped meanwhile (Ctrl-Z) waited
        for nothing.
        """
        window_s = WINDOW_S if self._window_s is None else self._window_s
        self._waited_s += min(waited_s, window_s / LEAST_WAITS)
        self._n_bytes += n_bytes
        if self._waited_s < window_s:
            return
        if self._n_bytes < MIN_BYTES_PER_S * self._waited_s:
            raise TooSlow(
                f"too slow: {self._n_bytes:,} bytes in {self._waited_s:.0f} s, "
                f"less than {MIN_BYTES_PER_S:,} a second"
            )
        self._waited_s, self._n_bytes = 0.0, 0


def watched(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """``pieces`` as they come. Raises ``TooSlow`` where that takes too long, tries and all."""
    pace = Pace(BODY_WINDOW_S)
    while True:
        began = time.monotonic()
        piece = next(pieces, None)
        if piece is None:
            return
        pace.add(len(piece), time.monotonic() - began)
        yield piece


class PacedStream(io.RawIOBase):
    """The bytes of ``raw`` for one answer: at a pace, and no more of them than ``allow`` said.

    The wait for the first byte does not count. Raises ``TooSlow``, ``Overlong``.
    """

    def __init__(self, raw: io.RawIOBase) -> None:
        self._raw = raw
        self._pace: Pace | None = None
        self._left = 0

    def allow(self, n_bytes: int) -> None:
        """``n_bytes`` may come from here on, until this is called again."""
        self._left = n_bytes

    def readinto(self, buffer: memoryview) -> int | None:  # type: ignore[override]
        """As ``io.RawIOBase.readinto``."""
        if self._left <= 0:
            raise Overlong("an answer that goes on without saying anything")
        began = time.monotonic()
        n_bytes: int | None = self._raw.readinto(buffer)
        if n_bytes:
            self._left -= n_bytes
            if self._pace is None:
                self._pace = Pace()
            else:
                self._pace.add(n_bytes, time.monotonic() - began)
        return n_bytes

    def readable(self) -> bool:
        """It is there to be read."""
        return True

    def close(self) -> None:
        """Close what is read, too."""
        self._raw.close()
        super().close()


class Overlong(OSError):
    """Bytes come on and on that are no part of what was asked for."""
