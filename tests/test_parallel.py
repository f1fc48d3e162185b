from __future__ import annotations

import threading
from collections import Counter

import pytest

from kvg.crew import Crew
from kvg.parallel import in_order, writers


def allow(n: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the system give ``n`` threads and no more; returns the names of those."""
    started: list[str] = []
    start = threading.Thread.start

    def start_or_fail(thread: threading.Thread) -> None:
        if len(started) == n:
            raise RuntimeError("can't start new thread")
        started.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_or_fail)
    return started


@pytest.mark.parametrize("n_given", [0, 1, 2])
def test_fewer_threads_than_asked_for_do_all_of_it_once(
    monkeypatch: pytest.MonkeyPatch, n_given: int
) -> None:
    started = allow(n_given, monkeypatch)
    done: Counter[int] = Counter()

    def work(item: int) -> int:
        done[item] += 1
        return item * item

    assert list(in_order(work, range(200), threads=4)) == [item * item for item in range(200)]
    assert len(started) == n_given and set(done.values()) == {1} and len(done) == 200


def test_without_threads_a_failure_is_raised_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    allow(0, monkeypatch)
    found: list[float] = []
    with pytest.raises(ZeroDivisionError):
        for value in in_order(lambda item: 1 / item, (1, 2, 0, 4), threads=2):
            found.append(value)
    assert found[:1] == [1.0]


def test_another_failure_of_the_threads_is_not_hidden() -> None:
    crew = Crew(1)
    crew.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        crew.submit(int)


def test_what_is_cancelled_before_it_began_is_not_done() -> None:
    begun, go_on, done = threading.Event(), threading.Event(), []
    with Crew(1) as crew:
        first = crew.submit(lambda: begun.set() or go_on.wait(10))
        second = crew.submit(done.append, 1)
        begun.wait(10)
        assert second.cancel()
        go_on.set()
        assert first.result() is True
    assert done == []


def test_one_job_writes_in_order_on_its_own_thread() -> None:
    seen = list(in_order(lambda _: threading.current_thread(), range(4), threads=writers(1)))
    assert set(seen) == {threading.current_thread()}
    assert writers(2) == 4
