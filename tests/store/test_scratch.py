"""Room beside memory: exact, gone when it ends, and no need of it on a full disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kvg.digest import sha256_bytes
from kvg.errors import NoSpace
from kvg.store import scratch as module
from kvg.store.lmdb_file import LmdbFile
from kvg.store.scratch import Seen, scratch

KEYS = [sha256_bytes(str(n).encode()) for n in range(3000)]


@pytest.fixture(autouse=True)
def few_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_IN_MEMORY", 256)


def check(seen: Seen) -> None:
    assert all(seen.add(key) for key in KEYS)
    assert not any(seen.add(key) for key in KEYS)
    assert seen.add(sha256_bytes(b"another"))


def test_what_was_added_is_known_and_nothing_else(tmp_path: Path) -> None:
    with scratch(tmp_path) as room:
        assert Seen(room).add(KEYS[0]) and os.listdir(tmp_path) == []
        check(Seen(room))
        assert room() is not None and len(os.listdir(tmp_path)) == 1
    assert os.listdir(tmp_path) == []


def test_without_a_file_memory_does(tmp_path: Path) -> None:
    with scratch(tmp_path / "none" / "such") as room:
        check(Seen(room))
        assert room() is None


def test_a_disk_that_fills_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writing, count = LmdbFile.writing, 0

    def full(self: LmdbFile) -> object:
        nonlocal count
        count += 1
        if count > 3:
            raise NoSpace("full")
        return writing(self)

    with scratch(tmp_path) as room:
        monkeypatch.setattr(LmdbFile, "writing", full)
        check(Seen(room))
    assert count == 4


def test_it_goes_after_an_error_too(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), scratch(tmp_path) as room:
        assert room() is not None
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []
