"""Who moves tags in a registry does so alone, and nobody waits for one that was killed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from kvg.remote import turns
from kvg.remote.distribution import Registry
from kvg.remote.layout import HeldUp
from kvg.remote.turns import Turn
from tests.remote.programs import registry


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, object]]:
    with registry(tmp_path_factory.mktemp("registry")) as server:
        yield server.url("team/turns"), server.access


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "LOOK_S", 0.01)


def test_one_at_a_time(url: tuple[str, object]) -> None:
    inside = most = done = 0
    guard, start = threading.Lock(), threading.Barrier(4)

    def work(name: str) -> None:
        nonlocal inside, most, done
        place = Registry(*url)
        start.wait()
        for _ in range(3):
            turn = Turn(place, name)
            turn.take()
            turn.take()
            with guard:
                inside += 1
                most = max(most, inside)
            time.sleep(0.01)
            turn.renew()
            with guard:
                inside -= 1
                done += 1
            turn.end()
            turn.end()
        place.close()

    threads = [threading.Thread(target=work, args=(f"log-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, done) == (1, 12)


@pytest.mark.parametrize("dead", ["log-0", "log-9"])
def test_a_killed_one_is_waited_for_no_longer_than_it_takes_to_tell(
    url: tuple[str, object], monkeypatch: pytest.MonkeyPatch, dead: str
) -> None:
    monkeypatch.setattr(turns, "WATCH_S", 0.5)
    Turn(Registry(*url), dead).take()
    began = time.monotonic()
    turn = Turn(Registry(*url), "log-5")
    turn.take()
    assert time.monotonic() - began >= 0.5
    turn.end()
    Turn(Registry(*url), dead).end()
    mine = Turn(Registry(*url), dead)
    mine.take()
    mine.end()


@pytest.mark.parametrize("other", ["log-0", "log-9"])
def test_one_that_lives_is_not_waited_for_for_ever(
    url: tuple[str, object], monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    monkeypatch.setattr(turns, "PATIENCE_S", 0.3)
    held = Turn(Registry(*url), other)
    held.take()
    with pytest.raises(HeldUp, match="moving tags"):
        Turn(Registry(*url), "log-5").take()
    held.end()
    turn = Turn(Registry(*url), "log-5")
    turn.take()
    turn.end()
