from __future__ import annotations

from pathlib import Path

import pytest

from kvg.digest import raw_of
from kvg.errors import Corrupt
from kvg.flow.ls import ls
from kvg.flow.settings import Settings
from kvg.store import Store
from kvg.store import tables as t
from kvg.store.lmdb_file import open_file
from kvg.store.outline import decode_outline, encode_outline, outline_of
from tests import artifacts as a


def listed(store: Store, folder: Path) -> list[object]:
    keys = folder / "keys"
    settings = Settings(cwd=folder, keys=keys, cache=keys, user_config=keys / "config.toml")
    return list(ls(store, settings))


def test_an_outline_is_that_of_the_manifest_and_is_read_as_written() -> None:
    manifest = a.build(range(20))[0]
    outline = outline_of(manifest)
    assert decode_outline(encode_outline(outline)) == outline
    assert (outline.tokens, outline.pages) == (20, len(manifest.pages))
    with pytest.raises(Corrupt):
        decode_outline(b"[]")


def test_a_list_is_the_same_from_the_index_and_from_the_manifests(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    for n in (10, 20, 10):
        a.deposit(store, key, ref=f"r{n}", ids=range(n))
    found = listed(store, tmp_path)
    assert len(found) == 2
    with open_file(store.index.folder).writing() as tables:
        for digest in store.artifacts():
            assert tables.get(t.OUTLINES, raw_of(digest)) is not None
            tables.delete(t.OUTLINES, raw_of(digest))
    assert listed(store, tmp_path) == found
    assert store.index.differences() == ("outlines: 2 rows differ from the objects",)
    store.reindex()
    assert store.index.differences() == () and listed(store, tmp_path) == found


def test_a_lost_manifest_is_named(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    store.objects.stored_path(made.digest).unlink()
    with pytest.raises(Corrupt, match="demo"):
        listed(store, tmp_path)
