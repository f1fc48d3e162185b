"""Pages on their way into a state, while a pass over its first layers has begun.

A page holds every layer of its tokens, the first one first. So of pages that are read side by side,
piece by piece, the first layers are whole long before the last, and a pass over them can begin: it
waits at each layer until that is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Condition
from types import TracebackType
from typing import Self

MOST_OPEN = 64
"""Pages that are read side by side: each is an open file."""
MOST_BYTES = 192 << 20
"""Bytes of them: of a compressed page about half is held while it is read."""


class Arrival:
    """One page that is put into a state.

    ``ends``: bytes of the page up to the end of each of its layers. ``given`` puts it, piece by
    piece, and yields how many bytes were put; at its end, and not before, the page is verified.
    """

    def __init__(self, size_bytes: int, ends: Mapping[int, int], given: Generator[int]) -> None:
        self.size_bytes = size_bytes
        self._ends = ends
        self._given = given
        self._n_bytes = 0

    def put(self, layer: int) -> None:
        """Go on until ``layer`` is there, if the page has it. Raises ``Corrupt``."""
        end = self._ends.get(layer, 0)
        while self._n_bytes < end:
            self._n_bytes = next(self._given)

    def finish(self) -> None:
        """Go on to the end. Raises ``Corrupt`` unless the page is what it was verified to be."""
        for _ in self._given:
            pass

    def close(self) -> None:
        """Go no further; the file is closed."""
        self._given.close()


class Filling:
    """Threads that put pages into a state, while another computes: it ``wait``s for each layer.

    What is there is **not** verified before ``finish`` has returned: a page is at its end. Who
    computes from it gives nothing out until then. A context: past its end nothing more is written.
    """

    def __init__(
        self,
        pages: Sequence[Arrival],
        layers: Sequence[int],
        *,
        threads: int,
        when_done: Callable[[], None],
    ) -> None:
        """``layers``: in the order in which pages hold them.

        As many ``threads``, two or more, put pages until the first layer is there; then one less,
        since the one that waited computes. ``when_done`` is called by that one when it finds that
        every page is there.
        """
        self.ended = 0.0
        """When the last page was verified, by ``time.perf_counter``."""
        self._pages = pages
        self._places = {layer: place for place, layer in enumerate(layers)}
        self._when_done = when_done
        self._changed = Condition()
        self._reached = [0] * threads
        """How many layers are there, of the pages of each thread."""
        self._is_ended = False
        self._pool = ThreadPoolExecutor(threads)
        try:
            self._shares = [self._pool.submit(self._fill, thread) for thread in range(threads)]
        except BaseException:
            self._end()
            raise

    def wait(self, layer: int) -> None:
        """Until ``layer`` is there, not verified. Raises what kept it from coming."""
        self._await(self._places[layer])
        if self._is_ended or all(share.done() for share in self._shares):
            self.finish()

    def finish(self) -> None:
        """Until every page is there and verified. Raises ``Corrupt`` naming one that is not."""
        for share in self._shares:
            share.result()
        self._when_done()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()
        self._pool.shutdown(wait=True)
        for page in self._pages:
            page.close()

    def _fill(self, thread: int) -> None:
        try:
            self._put(thread)
        except BaseException:
            self._end()
            raise

    def _put(self, thread: int) -> None:
        first, *others = self._places
        threads = len(self._reached)
        n_whole = len(self._pages) - _n_abreast(self._pages)
        for page in self._pages[thread:n_whole:threads]:
            page.finish()
        abreast = self._pages[n_whole:]
        is_last = thread == threads - 1
        self._bring(first, abreast[thread::threads])
        self._come(thread, len(self._places) if is_last else 1)
        if is_last:
            return
        self._await(0)
        own = abreast[thread :: threads - 1]
        for layer in others:
            self._bring(layer, own)
            self._come(thread, self._places[layer] + 1)
        for page in own if not self._is_ended else ():
            page.finish()
        self.ended = max(self.ended, time.perf_counter())

    def _bring(self, layer: int, pages: Sequence[Arrival]) -> None:
        for page in pages:
            if self._is_ended:
                return
            page.put(layer)

    def _come(self, thread: int, n_layers: int) -> None:
        with self._changed:
            self._reached[thread] = n_layers
            self._changed.notify_all()

    def _await(self, place: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_ended or min(self._reached) > place)

    def _end(self) -> None:
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()


def _n_abreast(pages: Sequence[Arrival]) -> int:
    """How many of the last of ``pages`` are read side by side."""
    n, n_bytes = 0, 0
    for page in reversed(pages[-MOST_OPEN:]):
        n_bytes += page.size_bytes
        if n_bytes > MOST_BYTES:
            break
        n += 1
    return n
