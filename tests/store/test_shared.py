"""Stores that a group shares, and stores that nobody else may see."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvg.durable import sharing
from kvg.errors import KvgError
from kvg.store import Store
from kvg.store.quota import QUOTA_KEY
from kvg.verify import verify_artifact
from tests import artifacts as a

OTHER, GROUP = 54321, 54322


@contextmanager
def umask(value: int) -> Iterator[None]:
    old = os.umask(value)
    try:
        yield
    finally:
        os.umask(old)


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "_shared", set())


def closed_to_the_group(root: Path) -> list[str]:
    """Where the group may not do what the owner may, or new files would not be the group's."""
    found = []
    for parent, _, names in os.walk(root):
        for path in (Path(parent), *(Path(parent, name) for name in names)):
            mode = stat.S_IMODE(path.stat().st_mode)
            is_open = (mode & 0o070) == (mode & 0o700) >> 3
            if not is_open or (path.is_dir() and not mode & 0o2000):
                found.append(f"{path.relative_to(root)} {mode:o}")
    return found


def used(folder: Path, *, shared: bool) -> Store:
    keyring = a.make_keyring(folder)
    store = Store.init(folder, keyring=keyring, shared=shared)
    store.trust_first(a.key_of("alice"), now=a.NOW)
    store.config.set(QUOTA_KEY, 1 << 40)
    a.deposit(store, a.key_of("alice"))
    return store


def test_field_s22_a_shared_store_is_open_to_the_group_whatever_the_umask(tmp_path: Path) -> None:
    with umask(0o077):
        store = used(tmp_path, shared=True)
        with store.pending() as pending:
            pending.put(b"x")
            assert closed_to_the_group(store.root) == []
        store.reindex()
        a.deposit(Store.open(tmp_path, keyring=store.keyring), a.key_of("alice"), ids=range(9))
        assert closed_to_the_group(store.root) == []
        assert store.is_shared


def test_a_store_that_is_there_can_be_shared(tmp_path: Path) -> None:
    with umask(0o077):
        store = used(tmp_path, shared=False)
        assert not store.is_shared and len(closed_to_the_group(store.root)) > 10
        assert Store.init(tmp_path, keyring=a.make_keyring(tmp_path), shared=True).is_shared
        assert closed_to_the_group(store.root) == []
        assert Store.init(tmp_path, keyring=a.make_keyring(tmp_path)).is_shared


def test_a_store_of_ones_own_follows_the_umask(tmp_path: Path) -> None:
    with umask(0o077):
        store = used(tmp_path, shared=False)
        assert stat.S_IMODE((store.root / "objects").stat().st_mode) == 0o700


def as_other(work: str, folder: Path) -> int:
    """Run ``work`` in a child as another user of the group; its exit code."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setgroups([])
            os.setgid(GROUP)
            os.setuid(OTHER)
            os.umask(0o077)
            store = Store.open(folder / "s", keyring=a.make_keyring(folder / "other"))
            made = store.refs()["demo"]
            artifact = verify_artifact(store, made)
            for page in artifact.manifest.pages:
                artifact.read_page(page)
            if work == "write":
                a.deposit(store, a.key_of("alice"), ids=range(9), ref="theirs")
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_field_s22_another_of_the_group_reads_and_writes() -> None:
    with tempfile.TemporaryDirectory() as name, umask(0o077):
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "s").mkdir()
        os.chown(folder / "s", -1, GROUP)
        (folder / "s").chmod(0o2770)
        store = used(folder / "s", shared=True)
        store.close()
        shutil.copytree(folder / "s" / "keys", folder / "other" / "keys")
        for parent, _, names in os.walk(folder / "other"):
            for path in (Path(parent), *(Path(parent, item) for item in names)):
                os.chown(path, OTHER, GROUP)
        assert as_other("read", folder) == 0
        assert as_other("write", folder) == 0
        assert set(store.refs()) == {"demo", "theirs"}
        a.deposit(store, a.key_of("alice"), ids=range(10), ref="ours")
        assert as_other("read", folder) == 0
        assert closed_to_the_group(store.root) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to any group")
@pytest.mark.parametrize("is_there", [False, True])
def test_field_s22_a_shared_store_is_of_its_folders_group(tmp_path: Path, is_there: bool) -> None:
    """Whatever the group of who makes it, and whether or not the folder hands its group down."""
    folder = tmp_path / "s"
    folder.mkdir()
    os.chown(folder, -1, GROUP)
    folder.chmod(0o775)
    if is_there:
        used(folder, shared=False)
    store = used(folder, shared=True)
    paths = [store.root, *store.root.rglob("*")]
    assert len(paths) > 10 and {path.lstat().st_gid for path in paths} == {GROUP}
    assert closed_to_the_group(store.root) == []
    os.chown(store.root / "config.toml", -1, GROUP + 1)
    Store.init(folder, keyring=a.make_keyring(folder), shared=True)  # again puts it right
    assert (store.root / "config.toml").stat().st_gid == GROUP


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_a_group_that_one_is_not_of_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, owner: int, group: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    os.chown(tmp_path, -1, GROUP)
    monkeypatch.setattr(os, "chown", refuse)
    with pytest.raises(KvgError, match=f"group {GROUP}"):
        Store.init(tmp_path, keyring=a.make_keyring(tmp_path), shared=True)
