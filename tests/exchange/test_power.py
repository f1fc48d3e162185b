"""Loss of power at who receives: a push at the remote, a pull at home, at every point.

What was not synced may be there or not, in every legal order (``tests/store/power.py``). After each
``fsck`` finds nothing, a reader sees nothing partial, and the next try ends the work.
``KVG_POWER_STATES`` is how many of the different folders each is tried on; 0 means all.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.exchange.conftest import Person
from tests.exchange.test_crash import (
    Pushing,
    _reader,
    check_nothing_partial,
    check_remote,
    copy,
    pushing,
)
from tests.store import power
from tests.store.faults import quick_folder
from tests.store.test_power import STATES, chosen

__all__ = ["pushing"]


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with quick_folder() as folder:
        yield folder


def is_of_index(step: power.Step) -> bool:
    """The index is a cache, and LMDB syncs by itself."""
    path = str(step[1][0])
    return "index.lmdb" in path or "tmp/index." in path


def recorded(folder: Path, work: Callable[[], object]) -> list[power.Step]:
    recorder = power.Recorder(folder)
    with recorder.recording():
        work()
    return [step for step in recorder.steps if not is_of_index(step)]


def put_back(tree: power.Tree, folder: Path, *, with_index: bool) -> None:
    """``folder`` as it is found when power is back: its index as it was before, or lost."""
    shutil.rmtree(folder)
    power.write(tree, folder)
    if not with_index:
        for path in [*folder.rglob("index.lmdb")]:
            shutil.rmtree(path)


@pytest.mark.slow
def test_the_remote_of_a_push(pushing: Pushing, record_property: Callable[..., None]) -> None:
    disk = power.Disk(pushing.share)
    steps = recorded(pushing.share, pushing.alice.push)
    trees = power.states(disk, steps)
    tried = chosen(trees, STATES)
    for number, tree in enumerate(tried):
        pushing.again()
        put_back(tree, pushing.share, with_index=number % 2 == 0)
        pushing.check()
    assert len(trees) > 20 and len(tried) > 1
    power.tried(record_property, "push, the remote", len(trees), len(tried))


@pytest.mark.slow
def test_the_remote_of_a_push_that_was_done(pushing: Pushing) -> None:
    """What the push has said is there stays there."""
    disk = power.Disk(pushing.share)
    for step in recorded(pushing.share, pushing.alice.push):
        disk.apply(step)
    for tree in disk.after_power_loss(12, random.Random(2)):
        put_back(tree, pushing.share, with_index=False)
        check_remote(pushing.share, pushing.alice.settings)
        reader = _reader(pushing.bob, pushing.folder)
        assert not reader.pull().findings
        assert reader.store.ref("demo") == pushing.newer


@pytest.fixture
def pulling(alice: Person, bob: Person, share: Path, tmp_path: Path) -> Iterator[Person]:
    """Bob, who is about to pull a newer ``demo``."""
    alice.deposit("demo", range(5, 20))
    alice.push()
    bob.clone(share, alice)
    alice.deposit("demo", range(40))
    alice.push()
    bob.store.close()
    copy(bob.folder, tmp_path / "bob0")
    yield bob


@pytest.mark.slow
def test_who_pulls(
    pulling: Person, alice: Person, tmp_path: Path, record_property: Callable[..., None]
) -> None:
    bob, older, newer = pulling, pulling.store.ref("demo"), alice.store.ref("demo")
    disk = power.Disk(bob.folder)
    steps = recorded(bob.folder, bob.pull)
    trees = power.states(disk, steps)
    tried = chosen(trees, STATES)
    for number, tree in enumerate(tried):
        bob.store.close()
        put_back(tree, bob.folder, with_index=number % 2 == 0)
        check_nothing_partial(bob)
        assert bob.store.ref("demo") in (older, newer)
        assert not bob.pull().findings
        assert bob.store.ref("demo") == newer
        check_nothing_partial(bob)
    assert len(trees) > 20 and len(tried) > 1
    power.tried(record_property, "pull", len(trees), len(tried))


@pytest.mark.slow
def test_who_has_pulled(pulling: Person, alice: Person) -> None:
    """What the pull has said is here stays here."""
    bob, newer = pulling, alice.store.ref("demo")
    disk = power.Disk(bob.folder)
    for step in recorded(bob.folder, bob.pull):
        disk.apply(step)
    for tree in disk.after_power_loss(12, random.Random(2)):
        bob.store.close()
        put_back(tree, bob.folder, with_index=False)
        check_nothing_partial(bob)
        assert bob.store.ref("demo") == newer
