"""``fsck --repair`` and the store's own log: whatever it hints at ends in a clean store, or in what
is lost, by name."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvg.store import Store
from kvg.verify.findings import Finding
from kvg.verify.fsck import FsckSummary, Repaired, fsck
from tests import artifacts as a
from tests.store.faults import copy_tree, hooked, quick_folder
from tests.verify.test_corruption import make
from tests.verify.test_fsck import look

MADE_ANEW = (
    "checkpoint",
    "verifier",
    "change of key",
    "hash tile, full",
    "hash tile, level 1",
    "hash tile, partial",
    "hash tile, older partial",
    "entry bundle, older partial",
)
HOW = ("flip", "cut", "empty", "swapped", "folder", "gone")


@pytest.fixture(scope="module")
def made() -> Iterator[tuple[Path, dict[str, str], Path]]:
    with quick_folder() as folder:
        _, files, _ = make(folder / "s")
        other, _, _ = make(folder / "other")
        yield folder / "s", files, other.root


@pytest.fixture
def store(made: tuple[Path, dict[str, str], Path], tmp_path: Path) -> Store:
    shutil.copytree(made[0] / ".kvg", tmp_path / "s")
    shutil.copytree(made[0] / "keys", tmp_path / "keys")
    return Store.open(tmp_path / "s", keyring=a.make_keyring(tmp_path))


def spoil(path: Path, how: str, twin: Path) -> None:
    data = path.read_bytes()
    path.unlink()
    if how == "folder":
        path.mkdir()
    elif how != "gone":
        half = len(data) // 2
        flipped = data[:half] + bytes([data[half] ^ 0x10]) + data[half + 1 :]
        kept = {"flip": flipped, "cut": data[:half], "empty": b""}
        path.write_bytes(kept[how] if how in kept else twin.read_bytes())


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("kind", MADE_ANEW)
def test_what_can_be_made_anew_is(
    made: tuple[Path, dict[str, str], Path], store: Store, kind: str, how: str
) -> None:
    _, files, other = made
    name = files[kind]
    path = store.root / name
    whole, refs = path.read_bytes(), dict(store.refs())
    store.close()
    twin = other / (name if kind in ("checkpoint", "verifier") else "log/verifier")
    spoil(path, how, twin)
    findings, repaired, _ = look(store)
    if "older" in kind and how in ("folder", "gone"):
        return  # older readers do without it
    assert findings and repaired == []
    assert all("kvg fsck" in str(f.hint) for f in findings if f.object == "log")
    _, repaired, summary = look(store, repair=True)
    assert (f"log/{name.removeprefix('log/')}", "made anew") in {
        (item.object, item.action) for item in repaired
    }
    assert summary.repaired == len(repaired)
    moved = [item for item in repaired if item.action == "moved"]
    assert len(moved) == (how != "gone")
    assert {item.object for item in moved} <= {name}
    assert path.read_bytes() == whole
    assert look(store)[0] == [] and store.refs() == refs


@pytest.mark.parametrize("kind", ["entry bundle, full", "entry bundle, partial", "first key"])
def test_what_is_lost_is_told_and_no_hint_leads_in_a_circle(
    made: tuple[Path, dict[str, str], Path], store: Store, kind: str
) -> None:
    name = made[1][kind]
    spoil(store.root / name, "cut", made[2])
    findings, _, _ = look(store, repair=True)
    lost = [f for f in findings if ": lost: " in f.message]
    assert [f.object for f in lost] == [name] and lost[0].code == 5
    assert "kvg fsck" not in str(lost[0].hint) and "copy of the store" in str(lost[0].hint)
    if kind == "first key":
        assert look(store)[0] == []


def test_a_checkpoint_is_never_made_of_what_nobody_signed(store: Store) -> None:
    """Without the user's memory, and with entries that somebody else may have put there."""
    (store.root / "log" / "checkpoint").unlink()
    (store.root / "log" / "cosigned").unlink()
    alone = Store.open(store.root)
    findings, repaired, _ = look(alone, repair=True)
    assert [f.object for f in findings if ": lost: " in f.message] == ["log/checkpoint"]
    assert repaired == [] and not (store.root / "log" / "checkpoint").exists()


def test_a_checkpoint_that_went_back_is_brought_forward(store: Store) -> None:
    path = store.root / "log" / "checkpoint"
    old, size = path.read_bytes(), store.log.size
    store.set_ref("later", None) if store.ref("later") else store.set_ref(
        "later", store.ref("demo")
    )
    _ = store.log
    newest = path.read_bytes()
    store.close()
    path.write_bytes(old)
    findings, repaired, _ = look(store, repair=True)
    assert any("rolled back" in f.message for f in findings)
    assert ("log/checkpoint", "made anew") in {(r.object, r.action) for r in repaired}
    assert path.read_bytes() == newest and store.log.size == size + 1
    assert look(store)[0] == []


def test_a_log_without_its_key_is_left_alone(store: Store) -> None:
    path = store.root / "config.toml"
    path.write_text(path.read_text().replace('log = "', 'log = "x'), encoding="utf-8")
    spoil(store.root / "log" / "verifier", "cut", path)
    found = [*fsck(Store.open(store.root), repair=True)]
    assert not [r for r in found if isinstance(r, Repaired) and r.object.startswith("log")]
    assert [f for f in found if isinstance(f, Finding)] and isinstance(found[-1], FsckSummary)


def test_what_others_said_is_not_moved_because_the_own_log_is_damaged(store: Store) -> None:
    (store.root / "log" / "verifier").write_bytes(b"")
    findings, repaired, _ = look(Store.open(store.root))
    assert not [f for f in findings if f.object.startswith("peers")], findings
    assert repaired == []


@pytest.mark.parametrize("folder", ["log", "log/tile", "log/tile/0", "log/rekey"])
@pytest.mark.parametrize("how", ["file", "link", "gone"])
def test_a_folder_of_hashes_that_is_none_is_moved(
    store: Store, tmp_path: Path, folder: str, how: str
) -> None:
    """Its entries are all that hashes are made of; ``log`` itself has those, too."""
    path = store.root / folder
    has_entries = folder in ("log", "log/tile")
    store.close()
    path.rename(tmp_path / "elsewhere")
    if how == "file":
        path.write_bytes(b"x")
    elif how == "link":
        path.symlink_to(tmp_path / "elsewhere")
    if folder == "log" and how == "link":
        return  # such a store is not opened
    findings, _, _ = look(store, repair=True)
    left = look(store)[0]
    if how == "link":
        assert [f.object for f in left] == [folder] and "by hand" in str(left[0].hint)
    elif has_entries:
        assert [f for f in findings if ": lost: " in f.message] and left
    else:
        assert left == [], left


def test_a_repair_that_is_cut_at_any_step_is_ended_by_the_next(
    made: tuple[Path, dict[str, str], Path], store: Store, tmp_path: Path
) -> None:
    """Three files are damaged at once, of which each is needed for the next."""
    _, files, other = made
    names = [files[kind] for kind in ("verifier", "checkpoint", "hash tile, full")]
    whole = {name: (store.root / name).read_bytes() for name in names}
    _ = store.log
    store.close()
    for name in names:
        spoil(store.root / name, "flip", other / name)
    n_steps = 0
    for at in range(1, 100):
        copy_tree(store.root, tmp_path / str(at))
        cut = Store.open(tmp_path / str(at), keyring=store.keyring)
        if not cut_at(cut, at):
            break
        n_steps = at
        look(cut, repair=True)
        assert look(cut)[0] == [], at
        assert {name: (cut.root / name).read_bytes() for name in names} == whole, at
    assert n_steps > 20


class Cut(BaseException):
    """The process ends here."""


def cut_at(store: Store, at: int) -> bool:
    """Repair until step ``at``; whether it came that far."""
    count = 0

    def hook(_name: str, _path: str) -> None:
        nonlocal count
        count += 1
        if count == at:
            raise Cut

    try:
        with hooked(hook):
            look(store, repair=True)
    except Cut:
        return True
    finally:
        store.close()
    return False
