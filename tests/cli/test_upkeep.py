"""Upkeep from the command line: gc, fsck."""

from __future__ import annotations

import os

from kvg.digest import hex_of
from tests.artifacts import deposit, key_of
from tests.cli.conftest import Run, Stored


def test_gc(stored: Stored, kvg: Run) -> None:
    assert kvg("gc").out.startswith("removed 0 objects, 0 B; ")
    kvg("rm", "demo")
    planned = kvg("gc", "--dry-run", "--json").record
    assert planned["type"] == "collected" and planned["dry_run"] and planned["objects"] > 3
    assert "would remove" in kvg("gc", "--dry-run").out
    done = kvg("gc", "--json").record
    assert {**done, "dry_run": True} == {**planned}
    assert kvg("gc", "--json").record["objects"] == 0


def test_fsck(stored: Stored, kvg: Run) -> None:
    good = kvg("fsck")
    assert good.code == 0 and "no faults" in good.out
    path = stored.store.objects.stored_path(stored.digest)
    os.unlink(path)
    bad = kvg("fsck")
    assert bad.code == 5 and "missing" in bad.out and "1 fault" in bad.out
    deposit(stored.store, key_of("other"))
    page = stored.store.manifest(stored.digest).pages[0].digest
    path = stored.store.objects.stored_path(page)
    path.chmod(0o644)
    path.write_bytes(b"KVZ1")
    records = kvg("fsck", "--repair", "--json")
    assert records.code == 5
    assert [item["type"] for item in records.records] == ["finding", "repaired", "fsck-summary"]
    assert records.records[1]["moved_to"] == f"lost-found/{hex_of(page)}.0"
    assert "nothing needs" in kvg("fsck", "-v").out
