"""What ``fsck``, ``du``, ``stats``, ``reindex`` and ``quota`` count of one store."""

from __future__ import annotations

import os
from pathlib import Path

from tests.artifacts import deposit, key_of
from tests.cli.conftest import Run, Stored


def size_on_disk(root: Path) -> int:
    return sum(path.lstat().st_size for path in root.rglob("*") if not path.is_dir())


def check_same(kvg: Run, root: Path) -> dict:
    fsck = kvg("fsck", "--json").records[-1]
    du = kvg("du", "--json").records[-1]
    stats = kvg("stats", "--json").record
    reindex = kvg("reindex", "--json").record
    n_objects = sum(1 for path in (root / "objects").rglob("*") if path.is_file())
    assert fsck["objects"] + fsck["damaged"] == n_objects
    assert du["objects"] == stats["objects"] == reindex["objects"] == n_objects
    assert fsck["artifacts"] == stats["artifacts"] == reindex["artifacts"]
    assert fsck["log_entries"] == stats["log_entries"] == reindex["entries"]
    du = kvg("du", "--json").records[-1]
    kinds = ("object", "temporary", "lost_found", "log", "index", "reserve", "other")
    assert sum(du[f"{kind}_bytes"] for kind in kinds) == du["total_bytes"] == size_on_disk(root)
    used = kvg("quota", "--json").record["used"]
    assert used == du["object_bytes"] + du["temporary_bytes"] + du["lost_found_bytes"]
    return fsck


def test_the_same_thing_has_the_same_number(stored: Stored, kvg: Run) -> None:
    """Two names for one, a pin without a name, what gc has begun on, what nobody named."""
    store, key = stored.store, key_of("other")
    store.set_ref("same", stored.digest)
    pinned = deposit(store, key, ref=None, ids=range(40, 70)).digest
    store.set_pin(pinned, True)
    half = deposit(store, key, ref="half", ids=range(300, 330))
    store.set_ref("half", None)
    os.unlink(store.objects.stored_path(half.manifest.pages[0].digest))
    deposit(store, key, ref=None, ids=range(400, 420))
    assert check_same(kvg, store.root)["artifacts"] == 3
    whole = store.objects.stored_path(store.manifest(pinned).pages[0].digest)
    whole.chmod(0o644)
    whole.write_bytes(b"KVZ1")
    assert check_same(kvg, store.root)["damaged"] == 1
    assert "1 damaged" in kvg("fsck").out
    gone = store.objects.stored_path(store.refs()["demo"])
    os.unlink(gone)
    assert kvg("fsck", "--json").records[-1]["artifacts"] == 3
    assert kvg("stats", "--json").record["artifacts"] == 3
    assert kvg("fsck", "--repair").code == 5
    assert check_same(kvg, store.root)["damaged"] == 0


def test_what_others_pushed_is_counted_apart(stored: Stored, kvg: Run) -> None:
    """Once, whatever number of pointers lead to it; what both have is the store's own."""
    assert kvg("init", "--bare", "hub").code == 0
    assert kvg("tag", "same", "demo").code == 0
    assert kvg("remote", "add", "hub", "hub").code == 0 and kvg("push", "hub").code == 0
    there = kvg("--store", "hub", "fsck", "--json").records[-1]
    assert (there["artifacts"], there["pushed"], there["faults"]) == (0, 1, 0)
    assert kvg("--store", "hub", "stats", "--json").record["artifacts"] == 0
    assert "1 of others who pushed" in kvg("--store", "hub", "fsck").out
