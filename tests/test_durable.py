"""Names made durable for many at once. Crash and power tests of the stores do the rest."""

from __future__ import annotations

import errno
import os
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kvg import durable
from kvg.durable import steps
from kvg.errors import NotFound, Unreadable, UsageError
from tests.unlistable import make_unlistable


@pytest.mark.parametrize("n", [0, 3, durable.MANY_FOLDERS, 3 * durable.MANY_FOLDERS])
def test_each_of_many_folders_is_synced_once(
    tmp_path: Path, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / str(number) for number in range(n)]
    synced: list[tuple[str, int]] = []
    for folder in folders:
        folder.mkdir()
    monkeypatch.setattr(
        steps, "_hook", lambda name, path: synced.append((path, threading.get_ident()))
    )
    durable.sync_dirs(folders)
    assert sorted(path for path, _ in synced) == sorted(map(str, folders))
    assert (threading.get_ident() in {thread for _, thread in synced}) is (
        0 < n < durable.MANY_FOLDERS
    )


@pytest.mark.parametrize("n", [3, durable.MANY_FOLDERS])
def test_a_folder_that_went_is_named(tmp_path: Path, n: int) -> None:
    folders = [tmp_path / str(number) for number in range(n)]
    for folder in folders[1:]:
        folder.mkdir()
    with pytest.raises(NotFound, match=str(folders[0])):
        durable.sync_dirs(folders)


def test_many_files_are_moved_and_removed(tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    moves = [(tmp_path / "from" / str(n), tmp_path / f"to{n}" / "it") for n in range(40)]
    for path, _ in moves:
        path.write_bytes(b"it")
    durable.move_all(moves)
    assert all(target.read_bytes() == b"it" for _, target in moves)
    assert not list((tmp_path / "from").iterdir())
    durable.remove_all(target for _, target in moves)
    assert not any(target.exists() for _, target in moves)


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))


def to_file(path: Path) -> None:
    path.with_name("other").write_bytes(b"kept")
    path.symlink_to("other")


NOT_PLAIN: dict[str, Callable[[Path], None]] = {
    "folder": Path.mkdir,
    "pipe": os.mkfifo,
    "socket": bind,
    "link to a file": to_file,
    "link to nothing": lambda path: path.symlink_to("nothing"),
    "link to a folder": lambda path: path.symlink_to("."),
    "device": lambda path: os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3)),
}


@pytest.mark.parametrize("kind", NOT_PLAIN)
def test_what_is_no_plain_file_is_not_replaced(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "target"
    try:
        NOT_PLAIN[kind](path)
    except PermissionError:
        pytest.skip("devices are made by root only")
    with pytest.raises(UsageError, match=r"target: (is a folder|a link|not a plain file)"):
        durable.check_target(path, option="--out")


def test_a_plain_file_is_replaced_and_a_new_one_made(tmp_path: Path) -> None:
    path = tmp_path / "target"
    durable.check_target(path, option="--out")
    path.write_bytes(b"before")
    durable.check_target(path, option="--out")
    with pytest.raises(NotFound, match="no such folder"):
        durable.check_target(path / "below", option="--out")


def test_a_name_that_is_too_long_is_a_slip_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 300)
    with pytest.raises(UsageError, match="too long for a name") as told, durable.translated(path):
        path.read_bytes()
    assert len(told.value.message) < 150
    assert not durable.is_file(path) and not durable.is_file(tmp_path)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.ESTALE])
def test_what_cannot_be_listed_is_not_taken_for_empty(
    tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "a" / "closed"
    closed.mkdir(parents=True)
    assert [Path(parent) for parent, _, _ in durable.walk(tmp_path)][-1] == closed
    make_unlistable(monkeypatch, closed, code)
    with pytest.raises(Unreadable, match="closed"):
        list(durable.walk(tmp_path))
    with pytest.raises(Unreadable, match="closed"):
        durable.names_in(closed)


def test_what_is_not_there_is_empty(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("none", "file"):
        assert durable.names_in(tmp_path / name) == []
        assert not list(durable.walk(tmp_path / name))
    for parent, folders, _ in durable.walk(tmp_path):
        if Path(parent) == tmp_path:
            folders.append("went")
    assert durable.names_in(tmp_path) == ["file"]
