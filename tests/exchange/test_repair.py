"""``fsck --repair`` puts back what is lost from a remote that has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvg.digest import Digest
from kvg.flow.fsck import fsck
from kvg.flow.records import Finding, FsckSummary, Repaired
from kvg.store import Store
from kvg.verify import verify_artifact
from tests.exchange.conftest import Person


@pytest.fixture
def lost(alice: Person, share: Path) -> tuple[Digest, list[Digest]]:
    """Alice pushed; then a page is flipped, another is gone, and so is an attestation."""
    digest = alice.deposit("demo", range(40))
    alice.push()
    store = alice.store
    first, second = store.manifest(digest).pages[:2]
    flipped = store.objects.stored_path(first.digest)
    data = bytearray(flipped.read_bytes())
    data[-1] ^= 1
    flipped.chmod(0o644)
    flipped.write_bytes(data)
    envelope = store.attestations(digest)[0].envelope
    for gone in (second.digest, envelope):
        store.objects.stored_path(gone).unlink()
    return digest, [first.digest, second.digest, envelope]


def repaired(person: Person) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for record in fsck(person.store, person.settings, repair=True):
        if isinstance(record, Repaired):
            found.setdefault(record.object, []).append(record.action)
    return found


def check_clean(store: Store, person: Person, digest: Digest) -> None:
    *findings, summary = fsck(store, person.settings)
    assert not findings and isinstance(summary, FsckSummary)
    artifact = verify_artifact(store, digest)
    for page in artifact.manifest.pages:
        artifact.read_page(page)


def test_what_is_lost_is_fetched(alice: Person, lost: tuple[Digest, list[Digest]]) -> None:
    digest, (first, second, envelope) = lost
    faults = [r for r in fsck(alice.store, alice.settings) if isinstance(r, Finding)]
    assert {fault.object for fault in faults} >= {first, second, envelope}
    done = repaired(alice)
    assert done[first] == ["moved", "fetched from origin"]
    assert done[second] == done[envelope] == ["fetched from origin"]
    check_clean(alice.store, alice, digest)


def test_a_remote_that_lies_or_is_away_gives_nothing(
    alice: Person, share: Path, lost: tuple[Digest, list[Digest]]
) -> None:
    _, (_, second, envelope) = lost
    (there,) = share.rglob(second.removeprefix("sha256:")[2:])
    there.chmod(0o644)
    there.write_bytes(there.read_bytes()[:-1] + b"x")
    alice.add(alice.folder / "nowhere", "away")
    done = repaired(alice)
    assert second not in done and done[envelope] == ["fetched from origin"]
    faults = [r for r in fsck(alice.store, alice.settings) if isinstance(r, Finding)]
    assert {fault.object for fault in faults} == {second}


@pytest.mark.parametrize("damage", ["emptied", "flipped", "tile"])
def test_a_damaged_copy_of_anothers_log_is_found_and_taken_anew(
    alice: Person, bob: Person, share: Path, damage: str
) -> None:
    alice.deposit("demo", range(40))
    alice.push()
    bob.clone(share, alice)
    (origin,) = bob.store.peers.origins()
    folder = bob.store.root / "peers" / origin
    path = folder / "checkpoint"
    if damage == "tile":
        path = next(found for found in (folder / "tile" / "entries").rglob("*") if found.is_file())
    data = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(b"" if damage == "emptied" else data[:-9] + b"A" + data[-8:])
    faults = [r for r in fsck(bob.store, bob.settings) if isinstance(r, Finding)]
    assert {fault.object for fault in faults} == {f"peers/{origin}"}
    assert repaired(bob) == {f"peers/{origin}": ["moved"]}
    (gone,) = [r for r in fsck(bob.store, bob.settings) if isinstance(r, Finding)]
    assert gone.object == f"peers/{origin}" and "missing" in gone.message
    newer = alice.deposit("next", range(7, 50))
    alice.push()
    assert not bob.pull().findings and bob.store.ref("origin/next") == newer
    assert not [r for r in fsck(bob.store, bob.settings) if isinstance(r, Finding)]


def test_entries_of_the_log_that_are_lost_come_back_from_a_remote(alice: Person) -> None:
    digest = alice.deposit("demo", range(40))
    alice.push()
    path = newest_bundle(alice.store)
    whole = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(whole[:90] + bytes([whole[90] ^ 1]) + whole[91:])
    for older in path.parent.iterdir():
        if older != path:
            older.unlink()
    faults = [r for r in fsck(alice.store, alice.settings) if isinstance(r, Finding)]
    assert {fault.hint for fault in faults if fault.object == "log"} == {"kvg fsck --repair"}
    done = repaired(alice)
    assert done[f"log/tile/entries/000.p/{path.name}"] == ["moved", "made anew"]
    assert path.read_bytes() == whole
    check_clean(alice.store, alice, digest)


def newest_bundle(store: Store) -> Path:
    folder = store.root / "log" / "tile" / "entries" / "000.p"
    return folder / str(store.log.size)


def test_entries_that_were_never_pushed_are_told_as_lost(alice: Person) -> None:
    alice.deposit("demo", range(40))
    alice.push()
    size = alice.store.log.size
    for path in newest_bundle(alice.store).parent.iterdir():
        path.unlink()
    faults = [r for r in fsck(alice.store, alice.settings, repair=True) if isinstance(r, Finding)]
    (lost,) = [fault for fault in faults if ": lost: " in fault.message]
    assert f"entry {size - 1}: neither here nor on a remote" in lost.message
    assert all("kvg fsck" not in str(fault.hint) for fault in faults)


def test_what_no_remote_has_is_told_without_a_hint_that_leads_back(alice: Person) -> None:
    digest = alice.deposit("demo", range(40))
    page = alice.store.manifest(digest).pages[0].digest
    alice.store.objects.stored_path(page).unlink()
    for _ in range(2):
        (fault,) = [
            r for r in fsck(alice.store, alice.settings, repair=True) if isinstance(r, Finding)
        ]
        assert fault.object == page and "copy of the store" in str(fault.hint)
