"""Refs that can't be proved: one wait for all, and what has moved meanwhile counts."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kvg.flow.exchange import reading
from kvg.flow.remote import remote_show
from kvg.remote.file_remote import FileRemote
from tests.exchange.conftest import Person

N_REFUSED = 60


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.slept: list[float] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds
        self.meanwhile()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(reading, "time", made)
    return made


def spoil(share: Path, names: list[str]) -> None:
    """Pointers of ``names`` that stand for what another ref is."""
    for name in names:
        shutil.copy(share / "refs" / "demo", share / "refs" / name)


def names() -> list[str]:
    return [f"wrong-{n}" for n in range(N_REFUSED)]


def test_many_that_are_refused_take_one_wait(
    alice: Person, bob: Person, share: Path, clock: Clock
) -> None:
    alice.deposit("demo")
    alice.push()
    spoil(share, names())
    outcome = bob.clone(share, alice)
    assert outcome.codes == [6] * N_REFUSED and outcome.states == {"demo": "new"}
    assert clock.slept == pytest.approx([reading.BETWEEN_LOG_AND_POINTER_S])
    shown = list(remote_show(bob.store, bob.settings, "origin"))
    assert [record.exit_code for record in shown].count(6) == N_REFUSED
    assert len(clock.slept) == 2


def test_many_that_are_refused_one_after_the_other_take_one_wait(
    alice: Person, share: Path, clock: Clock
) -> None:
    """A push looks at each of its own refs by itself."""
    alice.deposit("demo")
    for name in names()[:5]:
        alice.deposit(name)
    alice.push("demo")
    spoil(share, names()[:5])
    clock.now_s += 60
    alice.push()
    assert len(clock.slept) <= 1


def test_a_pointer_that_moved_meanwhile_counts(
    alice: Person, bob: Person, share: Path, clock: Clock
) -> None:
    for name in ("a", "b", "demo"):
        alice.deposit(name)
    alice.push()
    good = {name: (share / "refs" / name).read_bytes() for name in ("a", "b")}
    spoil(share, ["a", "b"])

    def move() -> None:
        for name, data in good.items():
            (share / "refs" / name).write_bytes(data)

    clock.meanwhile = move
    outcome = bob.clone(share, alice)
    assert outcome.codes == [] and set(outcome.states) == {"a", "b", "demo"}
    assert len(clock.slept) == 1


def test_a_log_that_went_on_meanwhile_is_read_again(
    alice: Person, bob: Person, share: Path, clock: Clock
) -> None:
    alice.deposit("demo")
    alice.push()
    spoil(share, ["new"])

    def push() -> None:
        clock.meanwhile = lambda: None
        (share / "refs" / "new").unlink()
        alice.deposit("new", range(50, 90))
        alice.push("new")

    clock.meanwhile = push
    outcome = bob.clone(share, alice)
    assert outcome.codes == [] and set(outcome.states) == {"demo", "new"}


def test_logs_are_listed_as_often_for_one_artifact_as_for_many(
    alice: Person, bob: Person, share: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    real = FileRemote.origins

    def origins(self: FileRemote) -> tuple[str, ...]:
        asked.append(self)
        return real(self)

    monkeypatch.setattr(FileRemote, "origins", origins)
    bob.init().add(share)
    counts = []
    for n_artifacts in (1, 4):
        for n in range(n_artifacts):
            alice.deposit(f"{n_artifacts}-{n}", range(n, 40 + 7 * n_artifacts))
        alice.push()
        asked.clear()
        assert len(bob.pull(trust=[alice.key.public.keyid]).transfer.refs) >= n_artifacts
        counts.append(len(asked))
    assert counts[1] <= counts[0]
