"""A folder of a store that somebody removed is made again when it is needed, as it was."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest

from kvg import durable
from kvg.errors import KvgError, NotFound
from kvg.locking import Lock
from kvg.store import Store
from kvg.store.forget import plan_forget, remove_for_good
from kvg.store.sweep import sweep
from kvg.verify import verify_artifact
from kvg.verify.fsck import Finding, fsck
from tests import artifacts as a

FOLDERS = ("tmp", "peers", "lost-found", "search", "index.lmdb")


def lose(store: Store, *names: str) -> None:
    store.index.close()
    for name in names:
        shutil.rmtree(store.root / name, ignore_errors=True)


@pytest.mark.parametrize("shared", [False, True])
def test_every_change_works_without_any_of_them(tmp_path: Path, shared: bool) -> None:
    store = Store.init(tmp_path, keyring=a.make_keyring(tmp_path), shared=shared)
    key = a.key_of("alice")
    store.trust_first(key, now=a.NOW)
    before = {name: modes(store.root / name) for name in ("tmp", "peers")}
    made = a.deposit(store, key, ids=range(20))
    lose(store, *FOLDERS)
    store.set_ref("tagged", made.digest)
    lose(store, *FOLDERS)
    store.config.set("store.codec", 1)
    lose(store, *FOLDERS)
    a.deposit(store, key, ref="other", ids=range(200, 227))
    lose(store, *FOLDERS)
    with store.exchange.exclusive():
        pass
    lose(store, *FOLDERS)
    assert sweep(store).kept > 0 and verify_artifact(store, made.digest)
    lose(store, *FOLDERS)
    found = [item for item in fsck(store, repair=True) if isinstance(item, Finding)]
    assert [item.object for item in found] == ["tmp"]
    lose(store, *FOLDERS)
    remove_for_good(store, plan_forget(store, made.digest), now=a.NOW)
    a.deposit(store, key, ids=range(30))
    with store.exchange.exclusive():
        pass
    assert {name: modes(store.root / name) for name in before} == before


def modes(path: Path) -> str:
    return stat.filemode(path.stat().st_mode)


def test_the_objects_too(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key, ids=range(20))
    lose(store, "objects")
    assert [item for item in fsck(store) if isinstance(item, Finding)]
    a.deposit(store, key, ids=range(20))
    assert verify_artifact(store, made.digest)


def test_no_store_is_made_where_one_went(tmp_path: Path) -> None:
    for gone in (tmp_path / "gone" / "tmp", tmp_path / "gone" / "peers"):
        with pytest.raises(FileNotFoundError):
            durable.claim(gone, "partial")
        with pytest.raises(NotFound), Lock(gone / "lock").exclusive():
            pass
    assert not (tmp_path / "gone").exists()


def test_what_cannot_be_staged_in_is_named(tmp_path: Path) -> None:
    (tmp_path / "tmp").write_bytes(b"")
    with pytest.raises(KvgError, match="/tmp: "):
        durable.replace(tmp_path / "log", [b"x"], staging=tmp_path / "tmp")
