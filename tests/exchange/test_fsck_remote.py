"""``fsck`` of a store that others push to: their logs, pointers and keys are looked at, too."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kvg.store import Store
from kvg.verify.findings import Finding
from kvg.verify.fsck import Repaired, fsck
from tests.exchange.conftest import Person


@pytest.fixture
def hub(tmp_path: Path, alice: Person) -> Store:
    """A bare store that Alice has pushed two refs to."""
    store = Store.init(tmp_path / "share", keyring=alice.keyring, bare=True)
    alice.deposit("demo")
    alice.deposit("other", range(40, 60))
    alice.push()
    return store


def faults(store: Store, *, repair: bool = False) -> list[Finding]:
    return [item for item in fsck(store, repair=repair) if isinstance(item, Finding)]


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.unlink()
    path.write_bytes(data)


def test_a_good_one_has_no_faults_and_counts_what_was_pushed(hub: Store) -> None:
    *found, summary = fsck(hub)
    assert (
        found == []
        and (summary.artifacts, summary.pushed) == (0, 2)
        and summary.unreachable is None
    )


def entries(log: Path) -> Path:
    return max((log / "tile/entries").rglob("*"), key=lambda path: path.is_file())


Spoil = Callable[[Path], object]
SPOILT: dict[str, tuple[str, Spoil]] = {
    "an entry": ("logs/ORIGIN", lambda root: flip(entries(next((root / "logs").iterdir())), 90)),
    "a checkpoint": ("logs/ORIGIN", lambda root: flip(*of_log(root, "checkpoint", 60))),
    "a verifier": ("logs/ORIGIN", lambda root: flip(*of_log(root, "verifier", 3))),
    "a publisher's note": ("logs/ORIGIN", lambda root: of_log(root, "publisher", 0)[0].unlink()),
    "a log's name": (
        "logs/kvg-other",
        lambda root: shutil.copytree(next((root / "logs").iterdir()), root / "logs/kvg-other"),
    ),
    "a pointer": ("refs/demo", lambda root: flip(root / "refs/demo", 12)),
    "two pointers": ("refs/demo", lambda root: swap(root / "refs/demo", root / "refs/other")),
    "a ref's name": (
        "refs/Upper",
        lambda root: shutil.copy(root / "refs/demo", root / "refs/Upper"),
    ),
    "a link": ("refs/link", lambda root: (root / "refs/link").symlink_to(root / "refs/demo")),
    "a key": ("keys/", lambda root: flip(next((root / "keys").iterdir()), 60)),
    "the listing": ("listing.json", lambda root: (root / "listing.json").write_bytes(b"{}")),
}


def of_log(root: Path, name: str, place: int) -> tuple[Path, int]:
    return next((root / "logs").iterdir()) / name, place


def swap(one: Path, two: Path) -> None:
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)


@pytest.mark.parametrize("what", SPOILT)
def test_what_is_spoilt_is_named_and_set_aside(
    hub: Store, alice: Person, bob: Person, share: Path, what: str
) -> None:
    name, spoil = SPOILT[what]
    name = name.replace("ORIGIN", alice.store.log.origin)
    spoil(hub.root)
    found = faults(hub)
    assert any(item.object.startswith(name) and item.code in (5, 6) for item in found), found
    others = [item for item in found if not item.object.startswith((name, "refs/"))]
    assert others == []
    repaired = [item for item in fsck(hub, repair=True) if isinstance(item, Repaired)]
    assert {item.object for item in repaired} == {item.object for item in found}
    assert all(item.moved_to and (hub.root / item.moved_to).exists() for item in repaired)
    again = alice.push(read_back=True)
    assert not again.findings
    assert faults(hub) == []
    assert not bob.clone(share, alice).findings


def test_what_a_pointer_needs_is_missing(hub: Store, alice: Person) -> None:
    manifest = alice.store.manifest(alice.store.resolve("demo").digest)
    hub.objects.stored_path(manifest.pages[0].digest).unlink()
    (found,) = faults(hub)
    assert found.object == manifest.pages[0].digest and "demo" in found.message
