"""Pages that processes of their own look at: the same is said of them as by one alone."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kvg import forked
from kvg.log.log import Log
from kvg.store import Store
from kvg.verify import Finding, VerifySummary, artifact_check, check_store
from tests import artifacts as a

Said = list[Finding | VerifySummary]


def said(store: Store, threads: int) -> Said:
    return list(check_store(store, with_blake3=False, threads=threads))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pages each lot of processes was given."""
    counts: list[int] = []

    class Counted(forked.Forked):
        def __init__(self, is_good: Callable[[int], bool], n_items: int, *, processes: int) -> None:
            counts.append(n_items)
            super().__init__(is_good, n_items, processes=processes)

    monkeypatch.setattr(artifact_check, "LEAST_PARALLEL_BYTES", 1)
    monkeypatch.setattr(forked, "can_fork", lambda: True)
    monkeypatch.setattr(forked, "Forked", Counted)
    return counts


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    write(path, data)


def cut(path: Path) -> None:
    write(path, path.read_bytes()[:-5])


def empty(path: Path) -> None:
    write(path, b"")


def write(path: Path, data: bytes | bytearray) -> None:
    path.chmod(0o644)
    path.write_bytes(data)


@pytest.mark.parametrize("codec", [0, 2])
@pytest.mark.parametrize("harm", [flip, cut, empty, Path.unlink])
def test_the_same_findings_either_way(
    tmp_path: Path, asked: list[int], codec: int, harm: Callable[[Path], None]
) -> None:
    store, key = a.make_store(tmp_path)
    store.config.set("store.codec", codec)
    made = a.deposit(store, key, ref="one", ids=range(27))
    pages = list(dict.fromkeys(page.digest for page in made.manifest.pages))
    assert len(pages) > 2
    whole = said(store, 2)
    assert asked == [len(pages)]
    assert whole == said(store, 1)
    assert isinstance(whole[-1], VerifySummary) and whole[-1].bytes_ok
    for page in (pages[0], pages[-1]):
        harm(store.objects.stored_path(page))
    found = said(store, 2)
    spoilt = [item.object for item in found if isinstance(item, Finding)]
    assert spoilt == [pages[0], pages[-1]]
    assert found == said(store, 1)


def test_what_artifacts_share_is_read_once(tmp_path: Path, asked: list[int]) -> None:
    store, key = a.make_store(tmp_path)
    one = a.deposit(store, key, ref="one", ids=range(20))
    two = a.deposit(store, key, ref="two", ids=range(27))
    of_one, of_two = ({page.digest for page in made.manifest.pages} for made in (one, two))
    said(store, 2)
    assert asked == [len(of_one), len(of_two - of_one)]


def test_where_no_pipe_is_to_be_had(
    tmp_path: Path, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def pipe() -> tuple[int, int]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    store, key = a.make_store(tmp_path)
    a.deposit(store, key, ref="one", ids=range(27))
    whole = said(store, 1)
    monkeypatch.setattr(os, "pipe", pipe)
    assert said(store, 2) == whole and asked


def test_pages_are_read_before_the_log_is_opened(
    tmp_path: Path, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    assert len(store.refs()) == 1  # the index knows
    begun_at_opening: list[int] = []
    opened = Log.open.__func__  # type: ignore[attr-defined]

    def opening(cls: type[Log], *args: object, **named: object) -> Log:
        begun_at_opening.append(len(asked))
        return opened(cls, *args, **named)

    monkeypatch.setattr(Log, "open", classmethod(opening))
    fresh = Store.open(store.root)
    assert said(fresh, 2) == said(store, 1)
    assert begun_at_opening[0] == 1 and asked == [len(made.manifest.pages)]


@pytest.mark.parametrize("ref", ["again", None])
def test_what_an_index_of_before_says_counts_for_nothing(
    tmp_path: Path, asked: list[int], ref: str | None
) -> None:
    """It says that ``early`` stands for an artifact that has another name now, or none at all."""
    store, key = a.make_store(tmp_path)
    digest = a.deposit(store, key, ref="early").digest
    a.deposit(store, key, ref="last", ids=range(40, 70))
    flip(store.objects.stored_path(digest))
    assert "early" in store.refs()
    store.close()
    shutil.copytree(store.root / "index.lmdb", tmp_path / "before")
    store.set_ref("early", None)
    if ref is not None:
        store.set_ref(ref, digest)
    right = said(store, 1)
    store.close()
    shutil.rmtree(store.root / "index.lmdb")
    shutil.copytree(tmp_path / "before", store.root / "index.lmdb")
    assert said(Store.open(store.root), 2) == right
    assert any(isinstance(found, Finding) for found in right) == (ref is not None)
