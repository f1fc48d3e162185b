"""A pass begins before all pages are there: it waits for its layers, and for every check."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator

import pytest

from kvg.errors import Corrupt
from kvg.model import filling as module
from kvg.model.filling import Arrival, Filling

LAYERS = (2, 3, 5)
ENDS = {2: 10, 3: 20, 5: 30}
SOON = 10.0
"""Seconds until a test that hangs fails."""


class Page:
    """A page of three layers of ten bytes each, whose pieces come as they are let."""

    def __init__(self, *, allowed: int = 30, fails_at: int = 99) -> None:
        self.n_bytes = 0
        self.is_closed = False
        self._allowed = threading.Semaphore(allowed // 5)
        self._fails_at = fails_at

    def let(self, n_bytes: int) -> None:
        self._allowed.release(n_bytes // 5)

    def given(self) -> Generator[int]:
        try:
            while self.n_bytes < 30:
                assert self._allowed.acquire(timeout=SOON)
                self.n_bytes += 5
                if self.n_bytes > self._fails_at:
                    raise Corrupt("page: damaged")
                yield self.n_bytes
            if self._fails_at == 30:
                raise Corrupt("page: damaged")
        finally:
            self.is_closed = True


def filling_of(pages: list[Page], threads: int, done: Callable[[], None] = list) -> Filling:
    return Filling(arrivals(pages), LAYERS, threads=threads, when_done=done)


def arrivals(pages: list[Page]) -> list[Arrival]:
    return [Arrival(30, ENDS, page.given()) for page in pages]


@pytest.mark.parametrize("threads", [2, 3, 5])
def test_a_layer_is_waited_for_until_every_page_has_it(threads: int) -> None:
    pages = [Page() for _ in range(4)] + [Page(allowed=10)]
    done: list[None] = []
    with filling_of(pages, threads, lambda: done.append(None)) as filling:
        filling.wait(2)
        assert all(page.n_bytes >= 10 for page in pages)
        went_on = threading.Event()
        waiting = threading.Thread(target=lambda: (filling.wait(3), went_on.set()))
        waiting.start()
        assert not went_on.wait(0.05)
        pages[-1].let(10)
        assert went_on.wait(SOON)
        waiting.join()
        assert all(page.n_bytes >= 20 for page in pages)
        assert not done
        pages[-1].let(10)
        filling.finish()
        assert filling.ended and done
        filling.wait(5)
    assert all(page.is_closed and page.n_bytes == 30 for page in pages)


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("fails_at", [0, 12, 25, 30])
def test_a_page_that_is_not_what_it_should_be_is_raised(threads: int, fails_at: int) -> None:
    """Also by who waits for a layer that will not come any more, or where the page ends."""
    pages = [Page(), Page(fails_at=fails_at), Page()]
    with filling_of(pages, threads) as filling:
        with pytest.raises(Corrupt):
            for layer in LAYERS:
                filling.wait(layer)
            filling.finish()
        with pytest.raises(Corrupt):
            filling.finish()
    assert all(page.is_closed or not page.n_bytes for page in pages)


def test_who_leaves_early_leaves_no_page_open() -> None:
    pages = [Page() for _ in range(3)] + [Page(allowed=10)]
    with pytest.raises(KeyError), filling_of(pages, 2):
        pages[-1].let(20)
        raise KeyError
    assert all(page.is_closed or not page.n_bytes for page in pages)


def test_only_so_many_pages_are_open_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_OPEN", 2)
    pages = [Page() for _ in range(4)] + [Page(allowed=10), Page(allowed=10)]
    with filling_of(pages, 2) as filling:
        filling.wait(2)
        assert [page.is_closed for page in pages] == [True] * 4 + [False] * 2
        for page in pages[4:]:
            page.let(20)
        filling.finish()
    monkeypatch.setattr(module, "MOST_BYTES", 59)
    assert module._n_abreast(arrivals(pages)) == 1
