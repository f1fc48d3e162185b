"""Where sessions lie: private, short, and nobody else's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kvg.client.place import (
    MOST_SOCKET_BYTES,
    Place,
    check_name,
    check_private,
    find_place,
    folder_for,
    make_folder,
)
from kvg.errors import NotFound, Untrusted, UsageError

FALLBACK = Path("/tmp") / f"kvg-{os.geteuid()}"


@pytest.fixture
def short() -> Path:
    """A folder of this user's whose path is short enough for a socket."""
    import tempfile

    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def test_the_folder_lies_in_the_runtime_folder(short: Path) -> None:
    assert folder_for(short) == short / "kvg"


@pytest.mark.parametrize("runtime", [None, Path("relative"), Path("/nosuch/folder")])
def test_without_one_it_lies_in_tmp(runtime: Path | None) -> None:
    assert folder_for(runtime) == FALLBACK


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_runtime_folder_of_someone_else_is_not_used(short: Path) -> None:
    os.chown(short, 65534, 65534)
    assert folder_for(short) == FALLBACK
    os.chown(short, 0, 0)


def test_a_long_path_is_replaced_by_a_short_one_of_its_own(tmp_path: Path) -> None:
    deep = [tmp_path / ("x" * 60) / name for name in ("a", "b")]
    for folder in deep:
        folder.mkdir(parents=True)
    found = [folder_for(folder) for folder in deep]
    assert found[0] != found[1]
    for folder in found:
        assert folder.parent == FALLBACK
        assert len(os.fsencode(Place("n" * 32, folder).socket)) <= MOST_SOCKET_BYTES


@pytest.mark.parametrize(
    "name", ["", "..", "a/b", "A", "-a", "a b", "a\n", "a\0", "x" * 33, "é", "a.lock"]
)
def test_names(name: str) -> None:
    with pytest.raises(UsageError):
        check_name(name)


def test_a_folder_that_others_may_enter_is_refused(short: Path) -> None:
    folder = short / "kvg"
    make_folder(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o750)
    with pytest.raises(Untrusted, match="others may enter"):
        make_folder(folder)


def test_a_link_in_place_of_the_folder_is_refused(short: Path) -> None:
    (short / "real").mkdir(mode=0o700)
    (short / "kvg").symlink_to(short / "real")
    with pytest.raises(Untrusted, match="not a folder of yours"):
        make_folder(short / "kvg")
    with pytest.raises(Untrusted):
        check_private(short / "kvg")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_someone_else_is_refused(short: Path) -> None:
    folder = short / "kvg"
    make_folder(folder)
    (folder / "desk.sock").touch()
    os.chown(folder, 65534, 65534)
    with pytest.raises(Untrusted, match="someone else may be listening"):
        find_place(folder, "desk")


def test_where_there_is_no_socket_there_is_no_session(short: Path) -> None:
    with pytest.raises(NotFound, match="not running"):
        find_place(short / "kvg", "desk")
