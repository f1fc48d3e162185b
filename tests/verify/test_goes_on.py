"""``fsck`` ends with a summary whatever is missing or damaged, and names it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvg.flow.fsck import fsck as flow
from kvg.flow.records.findings import Finding
from kvg.flow.records.upkeep import FsckSummary
from kvg.flow.settings import Settings, open_damaged
from kvg.store import Store
from kvg.store.forget import plan_forget, remove_for_good
from tests import artifacts as a


def made(tmp_path: Path) -> Path:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    page = store.objects.stored_path(made.manifest.pages[0].digest)
    page.chmod(0o644)
    page.write_bytes(b"damaged, too")
    store.close()
    return store.root


def look(tmp_path: Path, *, repair: bool = False) -> Iterator[object]:
    keys, cache, user = tmp_path / "keys", tmp_path / "cache", tmp_path / "user"
    settings = Settings(cwd=tmp_path, keys=keys, cache=cache, user_config=user)
    store, faults = open_damaged(settings)
    yield from flow(store, settings, repair=repair, faults=faults)


def spoil(path: Path, how: str) -> None:
    if how == "missing":
        path.unlink() if path.is_file() else shutil.rmtree(path)
    elif how == "folder":
        path.unlink()
        path.mkdir()
    elif how == "file":
        shutil.rmtree(path)
        path.write_bytes(b"x")
    else:
        path.write_bytes({"empty": b"", "junk": b"\xff= [[", "cut": path.read_bytes()[:-3]}[how])


CASES = [
    *((name, how) for how in ("missing", "empty", "junk", "folder")
      for name in ("format", "log/verifier", "log/checkpoint", "trust.json")),
    *(("config.toml", how) for how in ("missing", "empty", "junk", "folder")),
    ("format", "cut"),
    ("lock", "folder"),
    *((name, how) for name in ("log", "peers") for how in ("missing", "file")),
    ("log/tile", "missing"),
    *((name, "missing") for name in ("tmp", "objects")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "how"), CASES)
@pytest.mark.parametrize("repair", [False, True])
def test_each_file(tmp_path: Path, name: str, how: str, repair: bool) -> None:
    root = made(tmp_path)
    if (name, how) == ("trust.json", "missing"):
        a.deposit(a.Store.open(root, keyring=a.make_keyring(tmp_path)), None, ref="x", ids=range(9))
    spoil(root / name, how)
    said = list(look(tmp_path, repair=repair))
    assert isinstance(said[-1], FsckSummary)
    found = [item for item in said if isinstance(item, Finding)]
    assert said[-1].faults == len(found)
    assert {item.code for item in found} <= {5, 6}, found
    if (name, how) != ("peers", "missing"):
        assert any(name.split("/")[-1] in item.message for item in found), found
    assert any("page" in item.message or "object" in item.message for item in found), found


@pytest.mark.parametrize("name", ["tmp", "objects"])
def test_a_lost_folder_is_made_again(tmp_path: Path, name: str) -> None:
    store = Store.init(tmp_path, keyring=a.make_keyring(tmp_path))
    shutil.rmtree(store.root / name)
    (fault,) = (item for item in look(tmp_path, repair=True) if isinstance(item, Finding))
    assert (fault.object, fault.code) == (name, 5) and (store.root / name).is_dir()
    assert not [item for item in look(tmp_path) if isinstance(item, Finding)]


@pytest.mark.parametrize(
    "line", ["shared = 3", 'quota = "much"', "codec = true", "witnesses = 7", "log = 4"]
)
def test_a_setting_of_another_kind_is_named(tmp_path: Path, line: str) -> None:
    store, key = a.make_store(tmp_path)
    a.deposit(store, key)
    path = store.root / "config.toml"
    word = line.partition(" ")[0]
    kept = [old for old in path.read_text().splitlines() if not old.startswith(word)]
    path.write_text("\n".join([*kept, line, ""]))
    said = list(look(tmp_path))
    assert isinstance(said[-1], FsckSummary)
    found = [item for item in said if isinstance(item, Finding)]
    assert {item.code for item in found} == {5}
    assert any(f"store.{word} is not" in item.message for item in found)


@pytest.mark.parametrize(
    ("name", "is_folder"), [("usage", True), ("reserve", False), ("forgotten", False)]
)
def test_what_lies_in_the_place_of_another_kind(tmp_path: Path, name: str, is_folder: bool) -> None:
    store, key = a.make_store(tmp_path)
    digest = a.deposit(store, key).digest
    path = store.root / name
    if path.is_dir():
        shutil.rmtree(path)
    path.mkdir() if is_folder else path.write_bytes(b"x")
    (fault,) = (item for item in look(tmp_path, repair=True) if isinstance(item, Finding))
    assert (fault.object, fault.code) == (name, 5) and not path.exists()
    assert not [item for item in look(tmp_path) if isinstance(item, Finding)]
    path.mkdir() if is_folder else path.write_bytes(b"x")
    done = remove_for_good(store, plan_forget(store, digest), now=a.NOW)
    assert done.is_known and not store.refs()
