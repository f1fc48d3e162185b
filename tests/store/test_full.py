"""A full or read-only file system: what the hint says helps."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kvg import durable
from kvg.digest import sha256
from kvg.errors import Corrupt, KvgError, NoSpace
from kvg.log.entry import ForgetEntry
from kvg.store import RefMove, Store
from kvg.store.forget import plan_forget, remove_for_good
from kvg.store.quota import QUOTA_KEY
from kvg.store.reserve import PIECE_BYTES, PIECES
from kvg.store.sweep import sweep
from kvg.trust import Keyring
from kvg.verify.findings import Finding
from kvg.verify.fsck import fsck
from tests import artifacts as a
from tests.store.faults import hooked

GONE = sha256(b"gone")


def full(name: str, path: str) -> None:
    if name == "write":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


@pytest.mark.parametrize("verb", ["rm", "unpin", "forget"])
def test_letting_go_says_how_little_it_needs(tmp_path: Path, verb: str) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    store.set_pin(made.digest, True)
    (store.root / "search").mkdir()
    size = store.log.size

    def let_go() -> None:
        if verb == "rm":
            store.publish([RefMove("demo", None)])
        elif verb == "unpin":
            store.set_pin(made.digest, False)
        else:
            remove_for_good(store, plan_forget(store, made.digest), now=a.NOW)

    with hooked(full), pytest.raises(NoSpace) as refused:
        let_go()
    assert f"remove {store.root}/search" in str(refused.value.hint)
    assert "some KiB" in str(refused.value.hint) and Store.open(store.root).log.size == size
    let_go()


def test_taking_more_says_the_usual(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    with hooked(full), pytest.raises(NoSpace) as refused:
        store.set_ref("more", made.digest)
    assert refused.value.hint == "free some space, then run it again"


def test_a_read_only_file_system_has_a_hint() -> None:
    with (
        pytest.raises(KvgError, match="read-only file system") as refused,
        durable.translated("/somewhere"),
    ):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))
    assert "mount it for writing" in str(refused.value.hint)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 6 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mount: not permitted here, so no small disk")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=False)


def fill(disk: Path) -> None:
    """Take every block that is left, a page at a time at the end."""
    n = 0
    for size in (1 << 20, 1 << 12, 1):
        try:
            while True:
                (disk / f"filler{n}").write_bytes(bytes(size))
                n += 1
        except OSError as error:
            assert error.errno == errno.ENOSPC
    assert os.statvfs(disk).f_bavail == 0


def program(disk: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """``kvg`` as a program, with its keys on the same disk."""
    data = {"XDG_DATA_HOME": str(disk), "HOME": str(disk)}
    return subprocess.run(
        [sys.executable, "-m", "kvg", "-C", str(disk), *argv],
        env={**os.environ, **data, "XDG_CONFIG_HOME": str(disk / "config")},
        capture_output=True,
        text=True,
        check=False,
    )


def on_disk(disk: Path, names: Sequence[str]) -> Store:
    """A store with an artifact for each of ``names``, and its keys, on ``disk``."""
    store = Store.init(disk, keyring=Keyring(disk / "kvg" / "keys"))
    key = a.key_of("alice")
    store.trust_first(key, now=a.NOW)
    for number, name in enumerate(names):
        a.deposit(store, key, ref=name, ids=range(40 * number, 40 * number + 30))
    store.close()
    return store


@pytest.mark.parametrize("verb", [("rm", "a"), ("forget", "a"), ("gc",), ("forget", "a", "b")])
def test_a_full_disk_can_be_freed(small_disk: Path, verb: Sequence[str]) -> None:
    store = on_disk(small_disk, "abc")
    if verb[0] == "gc":
        store.set_ref("a", None)
        store.close()
    fill(small_disk)
    done = program(small_disk, *verb)
    assert done.returncode == 0, done.stderr
    collected = program(small_disk, "gc")
    assert collected.returncode == 0, collected.stderr
    assert os.statvfs(small_disk).f_bavail > 0
    checked = program(small_disk, "fsck")
    assert checked.returncode == 0, checked.stdout
    assert set(Store.open(small_disk).refs()) == set("abc") - set(verb) - (
        {"a"} if "gc" in verb else set()
    )


def test_one_by_one_on_a_disk_that_stays_full(small_disk: Path) -> None:
    """What the first lets go is not free for others: the reserve takes it up again."""
    on_disk(small_disk, "abcdef")
    for name in "abcdef":
        fill(small_disk)
        done = program(small_disk, "rm", name)
        assert done.returncode == 0, (name, done.stderr)
    assert program(small_disk, "gc").returncode == 0
    assert Store.open(small_disk).refs() == {}


def test_a_disk_without_inodes_can_be_freed(small_disk: Path) -> None:
    on_disk(small_disk, "abc")
    n = 0
    remount = ["mount", "-o", "remount,nr_inodes=600", str(small_disk)]
    subprocess.run(remount, check=True)
    with pytest.raises(OSError, match="No space") as refused:
        while True:
            (small_disk / f"filler{n}").touch()
            n += 1
    assert refused.value.errno == errno.ENOSPC and os.statvfs(small_disk).f_bavail > 0
    assert program(small_disk, "rm", "a").returncode == 0
    assert program(small_disk, "gc").returncode == 0
    assert program(small_disk, "fsck").returncode == 0


def test_a_lost_index_on_a_full_disk(small_disk: Path) -> None:
    """LMDB makes the file of its readers a hole and maps it: where there is no room, that kills."""
    store = on_disk(small_disk, "abc")
    shutil.rmtree(store.root / "index.lmdb")
    fill(small_disk)
    for words in (["ls"], ["rm", "a"], ["fsck"], ["gc"], ["verify"]):
        done = program(small_disk, *words)
        assert done.returncode == 0, (words, done.stderr)
    refused = program(small_disk, "reindex")
    assert refused.returncode in (0, 10), refused.stderr
    assert not list(store.staging.glob("index.*"))
    for filler in small_disk.glob("filler*"):
        filler.unlink()
    assert program(small_disk, "reindex").returncode == 0


def test_the_reserve_is_made_kept_and_made_again(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    whole = [PIECE_BYTES] * PIECES
    assert reserve(store) == whole
    store.config.set(QUOTA_KEY, 1 << 20)
    assert store.quota.used() < PIECE_BYTES
    a.deposit(store, key)
    sweep(store)
    assert reserve(store) == whole and not [f for f in fsck(store) if isinstance(f, Finding)]
    shutil.rmtree(store.reserve.folder)
    assert not [f for f in fsck(store) if isinstance(f, Finding)]
    store.set_ref("more", store.refs()["demo"])
    assert reserve(store) == whole
    (store.reserve.folder / "3").write_bytes(b"cut")
    sweep(store)
    assert reserve(store) == whole


def test_what_lets_nothing_go_has_no_reserve(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    with hooked(full), pytest.raises(NoSpace):
        store.set_ref("more", made.digest)
    assert reserve(store) == [PIECE_BYTES] * PIECES


def test_a_reserve_that_leads_elsewhere_is_not_followed(tmp_path: Path) -> None:
    store, _ = a.make_store(tmp_path)
    alien = tmp_path / "alien"
    alien.write_bytes(b"of another")
    (store.reserve.folder / "0").unlink()
    (store.reserve.folder / "0").symlink_to(alien)
    sweep(store)
    assert alien.read_bytes() == b"of another"
    with hooked(full), pytest.raises(NoSpace):
        store.publish([RefMove("demo", None)] if store.refs() else [ForgetEntry(a.NOW, GONE)])
    assert alien.read_bytes() == b"of another"
    shutil.rmtree(store.reserve.folder)
    (tmp_path / "folder").mkdir()
    store.reserve.folder.symlink_to(tmp_path / "folder")
    with pytest.raises(Corrupt, match="a link"):
        Store.open(store.root)


def reserve(store: Store) -> list[int]:
    return [path.stat().st_size for path in sorted(store.reserve.folder.iterdir())]
