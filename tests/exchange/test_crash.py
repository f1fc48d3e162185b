"""Push and pull, stopped at every step: nothing partial is seen, and the next try ends the work.

Each step of a push and of a pull is struck by one kind of fault beside ``kill -9``, in turn, and by
all of them with ``KVG_CRASH_ALL=1``. The remote is a store: after each ``fsck`` says of both sides
that nothing is wrong.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kvg import durable
from kvg.digest import Digest
from kvg.errors import KvgError
from kvg.flow.fsck import fsck
from kvg.flow.records.upkeep import FsckSummary
from kvg.flow.settings import Settings
from kvg.store import Store
from kvg.store.layout import has_format
from kvg.verify import check_store
from kvg.verify.check import VerifySummary
from tests import artifacts as a
from tests.exchange.conftest import Person
from tests.store.faults import (
    KINDS,
    Judged,
    Kind,
    Recorder,
    copy_tree,
    die,
    hooked,
    quick_folder,
    run,
    struck,
)

MATRIX = "exchange matrix"
KILL = KINDS[0].name
STRUCK = [kind for kind in KINDS if not kind.is_deadly]


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with quick_folder() as folder:
        yield folder


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand still, so that the same fault leaves the same bytes."""
    monkeypatch.setattr("kvg.store.store._seconds", lambda now: a.NOW if now is None else now)


def steps_of(work: Callable[[], object]) -> int:
    recorder = Recorder([])
    with hooked(recorder):
        work()
    return len(recorder.names)


def killed_at(work: Callable[[], object], at: int) -> bool:
    """Do ``work`` in a process that is killed at step ``at``; whether it came to its end."""
    count = 0

    def hook(_name: str, _path: str) -> None:
        nonlocal count
        count += 1
        if count == at:
            die()

    pid = os.fork()
    if pid == 0:
        try:
            durable.set_hook(hook)
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def check_clean(store: Store, settings: Settings) -> None:
    """``kvg fsck`` finds nothing."""
    *found, summary = fsck(store, settings)
    assert not found and isinstance(summary, FsckSummary) and not summary.faults, found


def check_remote(share: Path, settings: Settings) -> None:
    """What a push that was cut has left there: no object half, no name of what is not there."""
    if has_format(share):
        check_clean(Store.open(share), settings)


def check_nothing_partial(person: Person) -> None:
    """Everything that can be seen checks out."""
    check_clean(person.store, person.settings)
    *findings, last = check_store(person.store)
    assert not findings and isinstance(last, VerifySummary)
    for digest in person.store.artifacts():
        assert person.store.objects.has(digest)


copy = copy_tree


@dataclass(frozen=True)
class Pushing:
    """Alice is about to push a newer ``demo`` to a store that Bob has cloned from."""

    alice: Person
    bob: Person
    share: Path
    folder: Path
    newer: Digest
    judged: Judged

    def again(self) -> None:
        """Everything as it was."""
        copy(self.folder / "share0", self.share)
        copy(self.folder / "alice0", self.alice.folder)

    def check(self) -> None:
        """What is there is whole for the remote and for a reader, and the next push ends it."""
        alice, name = self.alice, "demo"
        if not self.judged.is_new(self.share, alice.folder):
            return
        check_remote(self.share, alice.settings)
        check_clean(alice.store, alice.settings)
        reader = _reader(self.bob, self.folder)
        seen = reader.pull()
        assert seen.codes in ([], [6]), seen.findings
        check_nothing_partial(reader)
        again = alice.push()
        assert not again.findings and again.states[name] in ("moved", "unchanged")
        check_remote(self.share, alice.settings)
        final = _reader(self.bob, self.folder)
        assert not final.pull().findings
        assert final.store.ref(name) == self.newer


@pytest.fixture
def pushing(alice: Person, bob: Person, share: Path, tmp_path: Path) -> Pushing:
    Store.init(share, keyring=alice.keyring, bare=True).close()
    alice.deposit("demo", range(5, 20))
    alice.push()
    bob.clone(share, alice)
    newer = alice.deposit("demo", range(40))
    copy(share, tmp_path / "share0")
    copy(alice.folder, tmp_path / "alice0")
    return Pushing(alice, bob, share, tmp_path, newer, Judged())


@pytest.mark.slow
def test_push_killed_at_every_step(pushing: Pushing, record_property: Callable[..., None]) -> None:
    total = steps_of(pushing.alice.push)
    for at in range(1, total + 1):
        pushing.again()
        killed_at(pushing.alice.push, at)
        pushing.check()
    struck(record_property, MATRIX, "push, killed", total, len(pushing.judged), {KILL: total})


@pytest.mark.slow
def test_push_struck_at_every_step(pushing: Pushing, record_property: Callable[..., None]) -> None:
    recorder = Recorder([])
    with hooked(recorder):
        pushing.alice.push()
    points = Counter[str]()
    for at, name in enumerate(recorder.names, 1):
        for kind in kinds_for(at, name):
            pushing.again()
            run(pushing.alice.push, kind, at)
            pushing.check()
            points[kind.name] += 1
    n_steps = len(recorder.names)
    struck(record_property, MATRIX, "push, other faults", n_steps, len(pushing.judged), points)


@pytest.mark.slow
def test_pull_killed_at_every_step(
    alice: Person, bob: Person, share: Path, tmp_path: Path, record_property: Callable[..., None]
) -> None:
    older = alice.deposit("demo", range(5, 20))
    alice.push()
    bob.clone(share, alice)
    newer = alice.deposit("demo", range(40))
    alice.push()
    copy(bob.folder, tmp_path / "bob0")
    total, judged = steps_of(bob.pull), Judged()
    for at in range(1, total + 1):
        copy(tmp_path / "bob0", bob.folder)
        is_done = killed_at(bob.pull, at)
        if not judged.is_new(is_done, bob.folder):
            continue
        check_nothing_partial(bob)
        assert bob.store.ref("demo") in ((newer,) if is_done else (older, newer))
        again = bob.pull()
        assert not again.findings
        assert bob.store.ref("demo") == newer
    struck(record_property, MATRIX, "pull, killed", total, len(judged), {KILL: total})


@pytest.mark.slow
def test_pull_struck_at_every_step(
    alice: Person, bob: Person, share: Path, tmp_path: Path, record_property: Callable[..., None]
) -> None:
    older = alice.deposit("demo", range(5, 20))
    alice.push()
    bob.clone(share, alice)
    newer = alice.deposit("demo", range(40))
    alice.push()
    copy(bob.folder, tmp_path / "bob0")
    recorder = Recorder([])
    with hooked(recorder):
        bob.pull()
    points, judged = Counter[str](), Judged()
    for at, name in enumerate(recorder.names, 1):
        for kind in kinds_for(at, name):
            copy(tmp_path / "bob0", bob.folder)
            points[kind.name] += 1
            is_done = run(bob.pull, kind, at)
            if not judged.is_new(is_done, bob.folder):
                continue
            check_nothing_partial(bob)
            assert bob.store.ref("demo") in ((newer,) if is_done else (older, newer)), (kind, at)
            assert not bob.pull().findings
            assert bob.store.ref("demo") == newer
    struck(record_property, MATRIX, "pull, other faults", len(recorder.names), len(judged), points)


def kinds_for(at: int, name: str) -> list[Kind]:
    fitting = [kind for kind in STRUCK if not kind.steps or name in kind.steps]
    return fitting if os.environ.get("KVG_CRASH_ALL") else [fitting[at % len(fitting)]]


def _reader(bob: Person, tmp_path: Path) -> Person:
    """Bob as he was, in a copy."""
    from dataclasses import replace

    folder = tmp_path / "reader"
    copy(bob.folder, folder)
    settings = replace(bob.settings, cwd=folder, keys=folder / "keys")
    return Person(folder, settings, bob.report)


def test_full_disk_at_the_remote_is_told_and_repaired(alice: Person, share: Path) -> None:
    import errno

    digest: Digest = alice.deposit("demo")
    count = 0

    def full(_name: str, path: str) -> None:
        nonlocal count
        if str(share) in path:
            count += 1
            if count > 30:
                raise OSError(errno.ENOSPC, "No space left on device")

    with hooked(full), pytest.raises(KvgError) as told:
        alice.push()
    assert told.value.code == 10
    assert not (share / "refs").exists()
    assert alice.push().transfer.refs[0].digest == digest
