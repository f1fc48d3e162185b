"""Something else in place of a folder of the store: named with exit 5, and nothing behind a link
is touched."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvg.errors import Corrupt, KvgError, Untrusted
from kvg.flow.audit import audit
from kvg.flow.settings import Settings
from kvg.store import Store
from kvg.store.sweep import sweep
from kvg.verify.check import check_store
from kvg.verify.findings import Finding
from kvg.verify.fsck import FsckSummary, fsck
from tests import artifacts as a


def file(path: Path) -> None:
    path.write_bytes(b"junk")


def fifo(path: Path) -> None:
    os.mkfifo(path)


def no_folder(path: Path) -> None:
    path.symlink_to("/dev/zero")


def made(tmp_path: Path) -> Store:
    store, key = a.make_store(tmp_path)
    for n in range(2):
        a.deposit(store, key, ref=f"t{n}", ids=range(30 * n, 30 * n + 27))
    with store.pending():
        pass
    store.close()
    return store


def of_a_page(store: Store) -> str:
    """The folder of the first page of an artifact."""
    digest = store.manifest(store.refs()["t0"]).pages[0].digest
    store.close()
    return str(store.objects.stored_path(digest).parent.relative_to(store.root))


def put(store: Store, name: str, what: Callable[[Path], None]) -> None:
    path = store.root / name
    if path.is_dir():
        shutil.rmtree(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    what(path)


def opened(tmp_path: Path) -> Store:
    return Store.open(tmp_path, keyring=a.make_keyring(tmp_path))


def findings(check: Callable[[Store], Iterator[object]], tmp_path: Path) -> list[Finding]:
    try:
        return [item for item in check(opened(tmp_path)) if isinstance(item, Finding)]
    except KvgError as error:
        return [Finding(error.code, error.kind, "store", error.message)]


@pytest.mark.parametrize("what", [file, fifo, no_folder])
@pytest.mark.parametrize("name", ["objects/OF A PAGE", "objects", "tmp", "tmp/pending"])
def test_each_is_named(tmp_path: Path, name: str, what: Callable[[Path], None]) -> None:
    store = made(tmp_path)
    put(store, name.replace("objects/OF A PAGE", of_a_page(store)), what)
    for check in (fsck, check_store):
        found = findings(check, tmp_path)
        assert {item.code for item in found} <= {Corrupt.code, Untrusted.code}, found
        assert found or (check is check_store and name.startswith("tmp"))
    settings = Settings(tmp_path, tmp_path / "keys", tmp_path / "cache", tmp_path / "user")
    try:
        for code in (item.code for item in audit(opened(tmp_path), settings).findings):
            assert code in (Corrupt.code, Untrusted.code)
    except Corrupt:
        pass


@pytest.mark.parametrize("what", [file, fifo, no_folder])
@pytest.mark.parametrize("name", ["objects/OF A PAGE", "tmp/pending"])
@pytest.mark.parametrize("repair", [False, True])
def test_fsck_ends_with_its_summary(
    tmp_path: Path, name: str, what: Callable[[Path], None], repair: bool
) -> None:
    store = made(tmp_path)
    name = name.replace("objects/OF A PAGE", of_a_page(store))
    put(store, name, what)
    said = list(fsck(opened(tmp_path), repair=repair))
    assert isinstance(said[-1], FsckSummary) and said[-1].faults
    found = [item for item in said if isinstance(item, Finding)]
    assert any(name in item.message for item in found), found
    assert {item.code for item in found} <= {Corrupt.code, Untrusted.code}, found


@pytest.mark.parametrize("what", [file, fifo, no_folder])
@pytest.mark.parametrize("name", ["tmp", "tmp/pending"])
def test_gc_does_not_go_on_without_word_of_the_writers(
    tmp_path: Path, name: str, what: Callable[[Path], None]
) -> None:
    """It is not known what they rely on."""
    store = made(tmp_path)
    digest = store.objects.put(b"not needed, as far as the log says").digest
    put(store, name, what)
    with pytest.raises(Corrupt, match=name) as told:
        sweep(opened(tmp_path))
    assert told.value.hint
    assert store.objects.has(digest)


OTHERS = ("roots.1", "partial.1", "data.mdb", "note", "a" * 62, "b" * 64, "c" * 32)


@pytest.mark.parametrize(
    "name",
    [
        "tmp/pending",
        "tmp/quarantine",
        "tmp/index.1",
        "objects/OTHER",
        "log/witnessed",
        "log/rekey",
        "forgotten",
        "lost-found",
        "search",
        "logs/kvg-x",
        "peers/kvg-x",
        "refs",
    ],
)
def test_nothing_behind_a_link_is_touched(tmp_path: Path, name: str) -> None:
    """Whoever may write in the store's folder could else have files of its users removed."""
    store = made(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for other in OTHERS:
        (elsewhere / other).write_bytes(b"of somebody")
    name = name.replace("OTHER", next(n for n in ("aa", "bb", "cc") if not is_there(store, n)))
    put(store, name, lambda path: path.symlink_to(elsewhere))
    for work in (sweep, lambda store: list(fsck(store, repair=True)), deposited):
        try:
            work(opened(tmp_path))
        except KvgError as error:
            assert error.code in (1, Corrupt.code, Untrusted.code), error
        assert {path.name for path in elsewhere.iterdir()} == set(OTHERS), work
        assert {path.read_bytes() for path in elsewhere.iterdir()} == {b"of somebody"}


def is_there(store: Store, prefix: str) -> bool:
    return (store.objects.folder / prefix).exists()


def deposited(store: Store) -> None:
    a.deposit(store, None, ref="new", ids=range(77, 99))
