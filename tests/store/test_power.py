"""Loss of power: every verb that changes a store, at every point, what was not synced undone.

``KVG_POWER_STATES`` is how many of the different folders each verb is tried on; 0 means all.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvg.store import Store
from tests import artifacts as a
from tests.store import power
from tests.store.faults import quick_folder
from tests.store.test_matrix import (
    FIRST,
    GONE,
    OLD,
    VERBS,
    Verb,
    check_sound,
    check_whole,
    copied,
    open_store,
    repair,
)

STATES = int(os.environ.get("KVG_POWER_STATES", "24"))
INDEX = os.path.join(".kvg", "index.lmdb")


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    with quick_folder() as folder:
        store, key = a.make_store(folder / "s")
        for ref, ids in (("demo", FIRST), ("old", OLD), ("gone", GONE)):
            a.deposit(store, key, ref=ref, ids=ids)
        store.set_ref("old", None)
        store.close()
        yield folder / "s"


def recorded(verb: Verb, folder: Path) -> list[power.Step]:
    """The steps of one run, without those of the index: it is a cache, and LMDB syncs by itself."""
    recorder = power.Recorder(folder)
    store = open_store(folder)
    with recorder.recording():
        verb.work(store)
    assert verb.done(store)
    store.close()
    return [step for step in recorder.steps if not is_of_index(str(step[1][0]))]


def is_of_index(path: str) -> bool:
    return path.startswith((INDEX, os.path.join(".kvg", "tmp", "index.")))


def started(verb: Verb, base: Path, folder: Path) -> Path:
    """A copy of ``base``; ``repair`` has something to do in it."""
    place = copied(base, folder)
    if verb.work is repair:
        (place / ".kvg" / "objects" / "stray").write_bytes(b"x")
    return place


def chosen(trees: list[power.Tree], most: int) -> list[power.Tree]:
    """``most`` of ``trees``, evenly spread from the first to the last."""
    if not most or len(trees) <= most:
        return trees
    return [trees[i * (len(trees) - 1) // (most - 1)] for i in range(most)]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_power_loss_at_every_point(
    base: Path, verb: Verb, record_property: Callable[[str, object], None]
) -> None:
    with quick_folder() as folder:
        disk = power.Disk(started(verb, base, folder))
        steps = recorded(verb, folder / "s")
        trees = power.states(disk, steps)
        tried = chosen(trees, STATES)
        for number, tree in enumerate(tried):
            where = f"{verb.name}: state {number} of {len(tried)}"
            place = folder / "after"
            power.write(tree, place)
            if number % 2:  # the index is as it was before, or it is lost
                shutil.rmtree(place / INDEX, ignore_errors=True)
            store = open_store(place)
            check_sound(store, verb, where)
            verb.work(store)
            assert verb.done(store), where
            check_whole(store, store.refs()["demo"])
            store.close()
            shutil.rmtree(place)
    assert len(trees) >= len(tried) > (verb.name != "reindex")
    power.tried(record_property, verb.name, len(trees), len(tried))


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_what_a_verb_has_said_is_done_stays_done(base: Path, verb: Verb) -> None:
    """Power is lost after it ended: nothing of it comes undone, and nothing removed comes back."""
    with quick_folder() as folder:
        disk = power.Disk(started(verb, base, folder))
        steps = recorded(verb, folder / "s")
        for step in steps:
            disk.apply(step)
        trees = list(disk.after_power_loss(12, random.Random(2)))
        for number, tree in enumerate(trees):
            place = folder / "after"
            power.write(tree, place)
            shutil.rmtree(place / INDEX, ignore_errors=True)
            store = open_store(place)
            where = f"{verb.name}: state {number} of {len(trees)}"
            assert verb.done(store), where
            check_sound(store, verb, where)
            store.close()
            shutil.rmtree(place)


def test_a_file_that_is_not_synced_is_caught(base: Path) -> None:
    """The model can fail: without the fsync of folders, or of files, it finds stores that lost."""
    deposit = next(verb for verb in VERBS if verb.name == "deposit")
    for of_folders in (False, True):
        with quick_folder() as folder:
            place = copied(base, folder)
            steps = recorded(deposit, place)
            kept = [
                step
                for step in steps
                if step[0] != "sync" or (place / str(step[1][0])).is_dir() != of_folders
            ]
            assert 0 < len(kept) < len(steps)
            assert any(is_broken(deposit, tree, folder) for tree in last_states(base, kept))


def last_states(base: Path, steps: list[power.Step]) -> list[power.Tree]:
    """What a loss of power may leave once the verb has come to its end and said so."""
    disk = power.Disk(base)
    for step in steps:
        disk.apply(step)
    return list(disk.after_power_loss(16, random.Random(1)))


def is_broken(verb: Verb, tree: power.Tree, folder: Path) -> bool:
    place = folder / "after"
    shutil.rmtree(place, ignore_errors=True)
    power.write(tree, place)
    shutil.rmtree(place / INDEX, ignore_errors=True)
    try:
        store = Store.open(place, keyring=a.make_keyring(place))
        check_sound(store, verb, "")
        return not verb.done(store)
    except Exception:  # noqa: BLE001  any failure tells
        return True
