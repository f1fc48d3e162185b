from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.store.faults import Judged, copy_tree


def made(folder: Path) -> Path:
    (folder / "objects" / "ab").mkdir(parents=True)
    (folder / "objects" / "ab" / "cd").write_bytes(b"object")
    (folder / "reserve").mkdir()
    (folder / "reserve" / "0").write_bytes(b"abc")
    (folder / "tmp" / "pending").mkdir(parents=True)
    (folder / "tmp" / "pending" / "roots.12.1.0123abcd").write_bytes(b"a\nb\n")
    (folder / "lock").write_bytes(b"process 12")
    (folder / "checkpoint").write_bytes(b"one two")
    return folder


def noted(folder: Path) -> None:
    (folder / "checkpoint").write_bytes(b"one twp")


def cut(folder: Path) -> None:
    (folder / "objects" / "ab" / "cd").unlink()
    (folder / "objects" / "ab" / "cd").write_bytes(b"objec")


def lost(folder: Path) -> None:
    (folder / "objects" / "ab" / "cd").unlink()


def more(folder: Path) -> None:
    (folder / "tmp" / "partial.12.2.0123abcd").write_bytes(b"")


def spent(folder: Path) -> None:
    (folder / "reserve" / "0").unlink()


def listed(folder: Path) -> None:
    (folder / "tmp" / "pending" / "roots.12.1.0123abcd").write_bytes(b"a\nc\n")


def closed(folder: Path) -> None:
    (folder / "checkpoint").chmod(0o600)


@pytest.mark.parametrize("change", [noted, cut, lost, more, spent, listed, closed])
def test_another_state_is_judged(tmp_path: Path, change: Callable[[Path], None]) -> None:
    judged = Judged()
    copy_tree(made(tmp_path / "a"), tmp_path / "b")
    assert judged.is_new(tmp_path / "a") and not judged.is_new(tmp_path / "b")
    change(tmp_path / "b")
    assert judged.is_new(tmp_path / "b") and judged.is_new(True, tmp_path / "b")
    assert not judged.is_new(tmp_path / "a") and len(judged) == 3


def test_what_means_nothing_makes_no_other_state(tmp_path: Path) -> None:
    judged = Judged()
    copy_tree(made(tmp_path / "a"), tmp_path / "b")
    assert judged.is_new(tmp_path / "a")
    (tmp_path / "b" / "lock").write_bytes(b"process 13")
    (tmp_path / "b" / "reserve" / "0").unlink()
    (tmp_path / "b" / "reserve" / "0").write_bytes(b"xyz")
    pending = tmp_path / "b" / "tmp" / "pending"
    (pending / "roots.12.1.0123abcd").unlink()
    (pending / "roots.13.7.fedc4321").write_bytes(b"b\na\n")
    assert not judged.is_new(tmp_path / "b")
