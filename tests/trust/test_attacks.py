"""The attack table: what somebody does who can write to a store, and how it is refused.

Each row is a function that tampers and then reads as a graft does; the decorator names the class
that must come out, exactly. What a signed lie in the pages' values is found by is in
``tests/flow/test_poisoned.py``, for it takes a model.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kvg.errors import KvgError
from kvg.objects.statement import (
    PASSED,
    TestResult,
)
from kvg.store import Store
from tests import artifacts as a
from tests.trust.attacks import (  # noqa: F401  each adds its rows
    on_fields,
    on_logs,
    on_manifests,
    on_names,
    on_objects,
    on_signatures,
    on_trust,
)
from tests.trust.attacks.world import ROWS, Attack, World


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, a.Made, a.Made]:
    folder = tmp_path_factory.mktemp("template")
    store, key = a.make_store(folder)
    made = a.deposit(store, key, ref="demo", gates=[TestResult(PASSED, "test")])
    other = a.deposit(store, key, ref="other", ids=range(40, 67))
    store.close()
    return folder, made, other


@pytest.fixture
def world(
    template: tuple[Path, a.Made, a.Made], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> World:
    monkeypatch.setattr("os.fsync", lambda fd: None)
    source, made, other = template
    folder = tmp_path / "world"
    shutil.copytree(source, folder)
    store = Store.open(folder / ".kvg", keyring=a.make_keyring(folder))
    return World(folder, store, made, other)


@pytest.mark.parametrize(
    ("error", "attack"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_is_refused(world: World, error: type[KvgError], attack: Attack) -> None:
    with pytest.raises(KvgError) as caught:
        attack(world)
    assert type(caught.value) is error, caught.value
    assert caught.value.message and "\n" not in caught.value.message


def test_the_table_is_as_long_as_it_says() -> None:
    names = [name for name, _, _ in ROWS]
    assert len(names) >= 50 and len(set(names)) == len(names)


def test_the_world_is_good_before_it_is_attacked(world: World) -> None:
    world.graft()
    world.graft(world.other.digest)


def test_an_alien_index_is_not_believed(world: World) -> None:
    """The index is a cache: another store's, or junk, changes no answer."""
    other, key = a.make_store(world.folder / "theirs", label="mallory")
    a.deposit(other, key, ref="demo", ids=range(70, 90))
    other.close()
    alien = (world.folder / "theirs/.kvg/index.lmdb/data.mdb").read_bytes()
    for data in (alien, alien[:4096], b"junk" * 5000, b""):
        world.store.close()
        world.overwrite(world.store.root / "index.lmdb/data.mdb", data)
        assert world.again().resolve("demo").digest == world.made.digest
        world.graft()
