"""A folder as a remote: what lies in it that is no file or folder of its own."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kvg import codec as kvz
from kvg import durable
from kvg.digest import Digest, sha256
from kvg.errors import Conflict, Corrupt, KvgError, RemoteFailed
from kvg.parallel import in_order
from kvg.remote import Pointer, Remote, open_remote
from kvg.remote.directory import DirectoryFiles
from kvg.remote.file_remote import FileRemote
from kvg.remote.layout import (
    MAX_KEY_BYTES,
    MAX_POINTER_BYTES,
    HeldUp,
    MalformedPointer,
    object_name,
)
from kvg.remote.serving import failure
from kvg.report import SilentReport
from tests.unlistable import make_unlistable

RAW = b"an object"
DIGEST = sha256(RAW)
PARTS = tuple(kvz.encode(RAW, digest=DIGEST, codec=kvz.ZSTD).parts())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "remote"


@pytest.fixture
def remote(folder: Path) -> Remote:
    made = open_remote(str(folder), cwd=folder.parent)
    made.make()
    return made


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    made = tmp_path / "outside"
    made.mkdir()
    return made


def put(remote: Remote) -> None:
    remote.put(DIGEST, PARTS)


def move(remote: Remote) -> None:
    remote.move("docs/a", Pointer("kvg-1", 7), expect=None)


OBJECT = Path(object_name(DIGEST))
WRITES: dict[str, tuple[str, Callable[[Remote], object]]] = {
    "objects": ("objects", put),
    "one folder of objects": (str(OBJECT.parent), put),
    "the temporary folder": ("tmp", put),
    "refs": ("refs", move),
    "a folder of refs": ("refs/docs", move),
    "the temporary folder of a move": ("tmp", move),
    "keys": ("keys", lambda remote: remote.offer("ab", "x")),
    "pushing": ("pushing", lambda remote: remote.announce("kvg-1")),
    "withdrawn": ("pushing", lambda remote: remote.withdraw("kvg-1")),
    "logs": ("logs", lambda remote: remote.log("kvg-1").write("checkpoint", b"x")),
    "a log": ("logs/kvg-1", lambda remote: remote.log("kvg-1").write("tile/0/000", b"x")),
    "a folder of a log": (
        "logs/kvg-1/tile",
        lambda remote: remote.log("kvg-1").swap("tile/0/000", b"x", expect=None),
    ),
}


@pytest.mark.parametrize("name", WRITES)
def test_nothing_is_written_through_a_link(
    name: str, remote: Remote, folder: Path, outside: Path
) -> None:
    linked, write = WRITES[name]
    path = folder / linked
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        path.rmdir()
    (outside / "kvg-1").write_bytes(b"kept")
    path.symlink_to(outside)
    with pytest.raises(Corrupt, match=f"{linked}: a link") as told:
        write(remote)
    assert told.value.hint
    assert os.listdir(outside) == ["kvg-1"] and (outside / "kvg-1").read_bytes() == b"kept"


def test_nothing_is_read_or_listed_through_a_link(
    remote: Remote, folder: Path, outside: Path
) -> None:
    put(remote)
    move(remote)
    (folder / "objects").rename(outside / "objects")
    (folder / "refs").rename(outside / "refs")
    for name in ("objects", "refs"):
        (folder / name).symlink_to(outside / name)
    again = open_remote(str(folder), cwd=folder.parent)
    assert again.missing([DIGEST]) == {DIGEST}
    for ask in (
        lambda: list(again.get(DIGEST, limit=1)),
        lambda: again.pointer("docs/a"),
        lambda: again.refs(),
    ):
        with pytest.raises(Corrupt, match="a link"):
            ask()


def test_a_lock_that_is_a_link_makes_nothing(remote: Remote, folder: Path, outside: Path) -> None:
    (folder / "lock").unlink()
    (folder / "lock").symlink_to(outside / "made")
    with pytest.raises(Corrupt, match="lock: a link"):
        move(remote)
    assert os.listdir(outside) == []


def test_a_link_among_files_keeps_nobody_from_the_others(
    remote: Remote, folder: Path, outside: Path
) -> None:
    """Neither a key on offer nor a pointer; an object is put anew in its place."""
    remote.offer("bb", "key")
    (folder / "keys" / "aa.pub").symlink_to(outside / "nothing")
    assert remote.offers() == {"bb": "key"}
    move(remote)
    (folder / "refs" / "b").symlink_to(outside / "nothing")
    found = remote.pointers(["docs/a", "b", "c"])
    assert found["docs/a"] == Pointer("kvg-1", 7) and found["c"] is None
    assert isinstance(found["b"], Corrupt)
    path = folder / OBJECT
    path.parent.mkdir(parents=True)
    path.symlink_to(outside / "nothing")
    absent: frozenset[Digest] = remote.missing([DIGEST])
    assert absent == {DIGEST}
    put(remote)
    assert not path.is_symlink() and remote.missing([DIGEST]) == frozenset()
    assert os.listdir(outside) == []


SWAPPED: dict[str, tuple[str, Callable[[Remote], object]]] = {
    **{name: WRITES[name] for name in ("objects", "one folder of objects", "refs", "logs")},
    "the temporary folder": WRITES["the temporary folder"],
    "the temporary folder of a move": WRITES["the temporary folder of a move"],
    "withdrawn": WRITES["withdrawn"],
    "half-written files": (
        "tmp",
        lambda remote: isinstance(remote, FileRemote) and remote.remove_abandoned(dry_run=False),
    ),
}


@pytest.mark.parametrize("at", ["create", "write", "rename", "unlink"])
@pytest.mark.parametrize("name", SWAPPED)
def test_a_folder_swapped_for_a_link_meanwhile_leads_nobody_out(
    name: str, at: str, remote: Remote, folder: Path, outside: Path
) -> None:
    """At any step of a write: what was begun in a folder ends in it, wherever that is by then."""
    linked, write = SWAPPED[name]
    path = folder / linked
    path.mkdir(parents=True, exist_ok=True)
    for inside in (path, outside):
        (inside / "kvg-1").write_bytes(b"kept")
        (inside / "partial.1.1.aa").write_bytes(b"half")
    before = sorted(outside.iterdir())
    is_swapped = False

    def swap(step: str, _: str) -> None:
        nonlocal is_swapped
        if step == at and not is_swapped:
            is_swapped = True
            path.rename(folder / "elsewhere")
            path.symlink_to(outside)

    durable.set_hook(swap)
    try:
        write(remote)
    except KvgError:
        pass
    finally:
        durable.set_hook(None)
    assert sorted(outside.iterdir()) == before
    assert (outside / "kvg-1").read_bytes() == b"kept"
    if is_swapped and name == "objects":
        assert (folder / "elsewhere" / OBJECT.relative_to("objects")).exists()


def test_files_beside_all_folders_go(remote: Remote, folder: Path) -> None:
    assert isinstance(remote, FileRemote)
    remote.begin_gc("kvg-1")
    assert (folder / "gc").exists()
    remote.end_gc()
    assert not (folder / "gc").exists()


def test_pointers_wait_for_the_disk_at_once_and_lose_without_a_trace(
    remote: Remote, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is held while one gets its name, not while a disk is waited for."""
    together = threading.Barrier(3, timeout=20)
    real = os.fsync

    def fsync(fd: int) -> None:
        if "partial" in os.readlink(f"/proc/self/fd/{fd}"):
            together.wait()
        real(fd)

    def move(number: int) -> bool:
        try:
            remote.move(f"a/{number % 2}", Pointer("o" * 8, number), expect=None)
        except Conflict:
            return False
        return True

    monkeypatch.setattr(os, "fsync", fsync)
    moved = list(in_order(move, range(3), threads=3))
    assert sorted(moved) == [False, True, True]
    assert not list((folder / "tmp").iterdir())


@pytest.mark.parametrize("name", ["refs", "refs/docs"])
def test_refs_that_cannot_be_listed_are_not_gone(
    remote: Remote, folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    move(remote)
    assert remote.refs() == ("docs/a",)
    make_unlistable(monkeypatch, folder / name)
    with pytest.raises(RemoteFailed, match=name):
        remote.refs()


def test_keys_on_offer_are_bounded(
    remote: Remote, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = folder / "keys"
    keys.mkdir()
    (keys / "aa.pub").write_text("a key")
    (keys / "bb.pub").write_text("x" * (MAX_KEY_BYTES + 1))
    (keys / "cc").write_text("no key")
    assert remote.offers() == {"aa": "a key"}
    monkeypatch.setattr("kvg.remote.layout.MAX_KEYS", 1)
    with pytest.raises(Corrupt, match="offers 2 keys"):
        remote.offers()


def test_a_pointer_larger_than_any_is_known_by_its_beginning(remote: Remote, folder: Path) -> None:
    path = folder / "refs" / "docs" / "a"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x" * (3 * MAX_POINTER_BYTES))
    (found,) = remote.pointers(["docs/a"]).values()
    assert isinstance(found, MalformedPointer) and len(found.data) == MAX_POINTER_BYTES + 1
    remote.move("docs/a", Pointer("kvg-1", 7), expect=found)
    assert remote.pointer("docs/a") == Pointer("kvg-1", 7)


def test_a_lock_that_another_holds_is_not_waited_for_for_ever(folder: Path, remote: Remote) -> None:
    """Whoever may read the folder can hold it."""
    told: list[str] = []

    class Notes(SilentReport):
        def notice(self, text: str) -> None:
            told.append(text)

    files = DirectoryFiles(folder, lock_wait=2.3, report=Notes())
    with open(folder / "lock", "rb") as reader:
        fcntl.flock(reader, fcntl.LOCK_EX)
        with pytest.raises(HeldUp, match=f"process {os.getpid()}") as refused:
            FileRemote(files).move("docs/a", Pointer("kvg-1", 7), expect=None)
        assert refused.value.code == Conflict.code and "--lock-wait" in str(refused.value.hint)
    assert len(told) == 1 and str(folder / "lock") in told[0]
    assert remote.refs() == () and not any((folder / "tmp").iterdir())
    FileRemote(files).move("docs/a", Pointer("kvg-1", 7), expect=None)
    assert remote.refs() == ("docs/a",)


def test_a_lock_not_had_on_the_far_side_is_no_moved_pointer() -> None:
    answer = failure(HeldUp("lock: held"))
    assert answer["error"] == {"code": RemoteFailed.code, "message": "lock: held", "hint": None}
