"""Refs whose names a remote can't hold beside others: told of each, and the rest goes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kvg.errors import Corrupt, KvgError, RemoteFailed
from kvg.remote import Pointer, open_remote
from kvg.remote.directory import DirectoryFiles
from kvg.remote.layout import InTheWay
from kvg.remote.tree import Tree
from tests.exchange.conftest import Person


def test_a_name_is_no_folder_of_another() -> None:
    tree = Tree(["a/b", "c"])
    assert tree.add("a") == "a/b"
    assert tree.add("c/d/e") == "c"
    assert tree.add("a/b") is None and tree.add("a/c") is None and tree.add("ab") is None
    assert tree.add("a/c/x") == "a/c"


def test_a_ref_in_the_way_of_another_is_told_and_the_rest_is_recorded(
    alice: Person, share: Path
) -> None:
    for ref in ("demo", "demo/x", "other"):
        alice.deposit(ref)
    outcome = alice.push()
    assert outcome.states == {"demo": "new", "other": "new"}
    (finding,) = outcome.findings
    assert (finding.object, finding.code) == ("demo/x", 4)
    assert "demo is in its way" in finding.message and "kvg mv demo/x" in (finding.hint or "")
    assert {"origin/demo", "origin/other"} <= alice.store.refs().keys()
    again = alice.push()
    assert again.states == {"demo": "unchanged", "other": "unchanged"} and again.codes == [4]


def test_folders_that_were_left_empty_make_way(alice: Person, share: Path) -> None:
    alice.deposit("demo/x/y")
    alice.push()
    alice.push("demo/x/y", delete=True)
    assert (share / "refs" / "demo" / "x").is_dir()
    alice.deposit("demo")
    assert alice.push("demo").states == {"demo": "new"}
    files = DirectoryFiles(share)
    with pytest.raises(InTheWay):
        files.swap("refs/demo/x", b"any", expect=None)
    with pytest.raises(InTheWay):
        files.swap("refs", b"any", expect=None)


def test_what_moved_before_the_remote_failed_is_recorded(
    alice: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvg.remote.file_remote import FileRemote

    for ref in ("a", "b"):
        alice.deposit(ref)
    move = FileRemote.move

    def failing(self: FileRemote, name: str, *args: object, **more: object) -> None:
        if name == "b":
            raise RemoteFailed("b: gone")
        move(self, name, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(FileRemote, "move", failing)
    with pytest.raises(RemoteFailed):
        alice.push()
    assert "origin/a" in alice.store.refs()


@pytest.mark.parametrize("name", ["-x", "x" * 150])
def test_a_name_that_no_tag_can_have_is_a_conflict(name: str, tmp_path: Path) -> None:
    with pytest.raises(KvgError, match="can't be a tag") as told:
        open_remote("oci://127.0.0.1:1/team/kv", cwd=tmp_path).check_ref(name)
    assert told.value.code == 4
    assert (told.value.hint == "kvg mv -- -x OTHER") == (name == "-x")


def test_what_is_no_plain_file_is_said_to_be_none(alice: Person, bob: Person, share: Path) -> None:
    alice.deposit("demo")
    alice.push()
    os.mkfifo(share / "refs" / "fifo")
    with pytest.raises(Corrupt, match="not a plain file"):
        open_remote(str(share), cwd=share).pointer("fifo")
    assert open_remote(str(share), cwd=share).pointers(["demo"])["demo"] == Pointer(
        alice.store.log.origin, alice.store.newest_moves()["demo"].index
    )
    outcome = bob.clone(share, alice)
    assert outcome.states == {"demo": "new"}
    assert [finding.object for finding in outcome.findings] == ["fifo"]
    assert "not a plain file" in outcome.findings[0].message
