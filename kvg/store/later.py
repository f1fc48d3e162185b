"""Work that waits for the disk while other things are done, known by the object that it is for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from concurrent.futures import Future

    from kvg.crew import Crew
    from kvg.digest import Digest

AT_ONCE: Final = 4
MOST_WAITING: Final = 16
"""Each holds a file open."""


class Later:
    """Work begun, to be waited for. Safe for threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._crew: Crew | None = None
        self._begun: dict[Digest, Future[None]] = {}

    def begin(self, digest: Digest, work: Callable[[], None]) -> None:
        """Begin ``work`` for ``digest``; where much is waiting, wait for the first of it."""
        with self._guard:
            if self._crew is None:
                from kvg.crew import Crew

                self._crew = Crew(AT_ONCE)
            self._begun[digest] = self._crew.submit(work)
            waiting = [future for future in self._begun.values() if not future.done()]
        if len(waiting) > MOST_WAITING:
            waiting[0].exception()  # whoever settles it raises that

    def settle(self, digest: Digest) -> None:
        """Wait for what was begun for ``digest``, and raise what it raised."""
        with self._guard:
            future = self._begun.pop(digest, None)
        if future is not None:
            future.result()

    def settle_all(self) -> None:
        """Wait for everything, and raise the first that was raised."""
        with self._guard:
            begun, self._begun = self._begun, {}
            crew, self._crew = self._crew, None
        if crew is not None:
            crew.shutdown(wait=True)
        for future in begun.values():
            future.result()
