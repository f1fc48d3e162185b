"""Turns: one at a time, in the order of asking, and a way out for who is no longer wanted."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable

import pytest

from kvg.errors import Interrupted
from kvg.flow.turns import Turns


def run(bodies: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=body) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def test_one_at_a_time() -> None:
    turns, inside, most = Turns(), [], []

    def work() -> None:
        with turns.held(threading.Event()):
            for _ in range(20):
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.0002)
                inside.pop()
                turns.pass_on()

    run([work] * 12)
    assert set(most) == {1} and len(most) == 240


def test_who_passes_on_goes_behind_all_who_wait() -> None:
    """Three that compute for long and one that comes late: each gets every fourth turn."""
    turns, seen = Turns(), []
    first = threading.Event()

    def work(name: str) -> None:
        with turns.held(threading.Event()):
            first.set()
            for _ in range(30):
                seen.append(name)
                time.sleep(0.001)
                turns.pass_on()

    run([lambda name=name: work(name) for name in "abcd"])  # type: ignore[misc]
    together = seen[20:100]
    for name in "abcd":
        places = [index for index, found in enumerate(together) if found == name]
        gaps = [b - a for a, b in itertools.pairwise(places)]
        assert max(gaps) <= 4, seen


def test_nobody_is_left_behind_when_one_fails() -> None:
    turns = Turns()
    with pytest.raises(ValueError), turns.held(threading.Event()):
        raise ValueError
    with turns.held(threading.Event()):
        turns.pass_on()


def test_cancelled_before_and_between() -> None:
    turns = Turns()
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(Interrupted), turns.held(cancelled):
        raise AssertionError("it ran")
    cancelled.clear()
    steps = []
    with pytest.raises(Interrupted), turns.held(cancelled):
        steps.append(1)
        turns.pass_on()
        cancelled.set()
        turns.pass_on()
        steps.append(2)
    assert steps == [1]
    with turns.held(threading.Event()):
        pass


def test_away_lets_others_work() -> None:
    turns, seen = Turns(), []
    with turns.held(threading.Event()):

        def other() -> None:
            with turns.held(threading.Event()):
                seen.append("other")

        thread = threading.Thread(target=other)
        thread.start()
        time.sleep(0.05)
        assert seen == []
        with turns.away():
            thread.join(10)
        assert seen == ["other"]
        turns.pass_on()
