"""What has no business in a store is named, each thing by itself, and moved when that is asked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kvg.store import Store
from tests import artifacts as a
from tests.verify.test_fsck import look

FOLDERS = (
    ".",
    "objects",
    "objects/ab",
    "log",
    "log/rekey",
    "log/tile",
    "log/tile/0",
    "log/tile/entries",
    "log/tile/0/000.p",
    "peers",
    "peers/kvg-0123",
    "peers/kvg-0123/tile/0",
    "forgotten",
    "reserve",
    "index.lmdb",
    "tmp",
    "tmp/pending",
    "refs",
    "keys",
    "logs",
    "trust",
    "search",
    "pushing",
)
NAMES = (
    "junk",
    "JUNK file",
    "new\nline",
    "\x1b[2J",
    "\u202egnp.exe",
    os.fsdecode(b"\xff\xfe"),
    "n" * 250,
    ".hidden",
    "000.p.old",
)
LIKE_AN_ORIGIN = ("junk", "n" * 250, "000.p.old")
IN_PLACE = {
    ("peers", "folder"),
    ("peers", "full folder"),
    ("peers", "link"),
    ("pushing", "link"),
    ("logs", "folder"),
    ("logs", "full folder"),
    ("pushing", "file"),
}
"""Where such a name may be that of a log: nothing is wrong with it, and a link is left in place."""


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda fd: None)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store, key = a.make_store(tmp_path)
    a.deposit(store, key)
    return store


@pytest.mark.parametrize("kind", ["file", "folder", "full folder", "link", "fifo"])
@pytest.mark.parametrize("folder", FOLDERS)
def test_each_is_named_and_moved(store: Store, folder: str, kind: str) -> None:
    refs = dict(store.refs())
    names = [n for n in NAMES if (folder, kind) not in IN_PLACE or n not in LIKE_AN_ORIGIN]
    (store.root / folder).mkdir(parents=True, exist_ok=True)
    for name in names:
        path = store.root / folder / name
        if kind == "file":
            path.write_bytes(b"x")
        elif kind == "link":
            path.symlink_to("/etc/passwd")
        elif kind == "fifo":
            os.mkfifo(path)
        else:
            path.mkdir()
            if kind == "full folder":
                (path / "inside").write_bytes(b"x")
    findings, repaired, _ = look(store)
    told = "".join(f"{finding.object}\n" for finding in findings)
    are_empty = folder in ("refs", "keys") and kind == "folder"  # as a ref that is gone leaves them
    for name in () if are_empty or folder == "trust" else names:
        assert name in told, (name, told)
    assert folder != "trust" or told == "trust\n"
    assert {finding.code for finding in findings} <= {5}
    assert all(finding.hint for finding in findings) and repaired == []
    _, repaired, _ = look(store, repair=True)
    left, _, _ = look(store)
    is_by_hand = folder == "." and kind == "link"
    assert are_empty or bool(left) is is_by_hand, left
    assert all("by hand" in str(finding.hint) for finding in left)
    assert bool(repaired) is not (is_by_hand or are_empty)
    assert dict(store.refs()) == refs


@pytest.mark.parametrize(
    "name", ["logs", "refs", "keys", "search", "pushing", "peers", "forgotten"]
)
def test_a_file_where_a_folder_belongs(store: Store, name: str) -> None:
    path = store.root / name
    if path.is_dir():
        path.rmdir()
    path.write_bytes(b"x")
    findings, _, _ = look(store, repair=True)
    assert [f.object for f in findings] and all(name in f.object for f in findings)
    assert look(store)[0] == [], name


def test_what_running_and_killed_writers_leave_is_no_stray(store: Store) -> None:
    with store.pending() as pending:
        pending.put(b"x")
        assert look(store)[0] == []
    (store.root / "tmp" / "partial.1.2.abcdef01").write_bytes(b"half")
    (store.root / "tmp" / "index.1.2.abcdef01").mkdir()
    (store.root / "tmp" / "index.1.2.abcdef01" / "data.mdb").write_bytes(b"half")
    (store.root / "peers" / "kvg-0123").mkdir()
    (store.root / "peers" / "kvg-0123" / "verifier").write_bytes(b"half")
    assert look(store)[0] == []
