"""What is received waits for the disk in the background, and is nobody's before it is there."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import pytest

from kvg.digest import Digest, sha256, shake256
from kvg.errors import NoSpace
from kvg.store.later import MOST_WAITING, Later
from kvg.store.objects import ObjectFolder
from tests.artifacts import make_store

RAW = shake256(b"an object", 5000)
DIGEST = sha256(RAW)


@pytest.fixture
def quarantine(tmp_path: Path) -> ObjectFolder:
    """One in which this object counts as long."""
    store, _ = make_store(tmp_path / "s")
    found = store.quarantine
    found.late_bytes = 100
    return found


def test_it_has_no_name_before_it_is_synced(
    quarantine: ObjectFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go, store = threading.Event(), make_store(tmp_path / "s")[0]
    monkeypatch.setattr("os.fsync", lambda fd: may_go.wait(20))
    assert quarantine.put(RAW).new
    assert not quarantine.has(DIGEST)
    may_go.set()
    quarantine.settle(DIGEST)
    assert quarantine.has(DIGEST)
    store.objects.adopt(quarantine, [DIGEST])
    assert bytes(store.objects.read(DIGEST, what="it")) == RAW


def test_who_adopts_waits(
    quarantine: ObjectFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(tmp_path / "s")[0]
    monkeypatch.setattr("os.fsync", lambda fd: time.sleep(0.02))
    quarantine.put(RAW)
    store.objects.adopt(quarantine, [DIGEST])
    assert store.objects.has(DIGEST)


def test_what_could_not_be_synced_is_told_and_gone(
    quarantine: ObjectFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    quarantine.put(RAW)
    with pytest.raises(NoSpace):
        quarantine.settle()
    assert not quarantine.has(DIGEST)
    assert not [path for path in quarantine.folder.rglob("*") if path.is_file()]
    quarantine.settle()  # told once


def test_no_more_wait_than_files_may_be_open() -> None:
    later, running, most = Later(), threading.Semaphore(0), 0
    names = [Digest(f"sha256:{number:064}") for number in range(3 * MOST_WAITING)]
    done: list[Digest] = []

    def work(name: Digest) -> None:
        time.sleep(0.001)
        done.append(name)
        running.release()

    for count, name in enumerate(names, 1):
        later.begin(name, lambda name=name: work(name))
        most = max(most, count - len(done))
    later.settle_all()
    assert sorted(done) == names and most <= MOST_WAITING + 1
