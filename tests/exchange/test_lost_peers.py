"""What was kept of the logs of others is lost: it is named, told of, and still protects."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kvg.store import Store
from kvg.store.rekey import rekey
from kvg.verify.findings import Finding
from kvg.verify.fsck import fsck
from tests.artifacts import NOW
from tests.exchange.conftest import Person
from tests.exchange.test_crash import copy


def faults(store: Store) -> list[Finding]:
    return [item for item in fsck(store) if isinstance(item, Finding)]


@pytest.fixture
def followed(alice: Person, bob: Person, share: Path) -> Person:
    """Bob, who has seen Alice's log twice."""
    alice.deposit("demo")
    alice.push()
    bob.clone(share, alice)
    copy(share, share.parent / "older")
    alice.deposit("demo", range(40))
    alice.push()
    assert not bob.pull().findings and faults(bob.store) == []
    bob.report.told.clear()
    return bob


def lose(person: Person, *, remembered: bool = False) -> None:
    shutil.rmtree(person.store.root / "peers")
    if remembered:
        for path in (person.settings.keys / "logs").glob("*.peers"):
            shutil.rmtree(path)


def test_fsck_names_it_and_a_fetch_mends_it(followed: Person, alice: Person) -> None:
    origin = alice.store.log.origin
    kept = followed.store.peers.log(origin)
    assert kept is not None
    size = kept.size
    lose(followed)
    (found,) = faults(followed.store)
    assert (found.object, found.code) == (f"peers/{origin}", 5)
    assert f"size {size}" in found.message and found.hint == "kvg fetch REMOTE"
    assert not followed.pull().findings
    (told,) = {text for text in followed.report.told if "peers" in text}
    assert origin in told and f"size {size}" in told
    assert faults(followed.store) == []
    followed.report.told.clear()
    followed.pull()
    assert not [text for text in followed.report.told if "peers" in text]


def test_it_still_protects_from_a_rollback(followed: Person, share: Path) -> None:
    lose(followed)
    copy(share.parent / "older", share)
    assert set(followed.pull().codes) == {6}
    assert "rolled back" in followed.pull().findings[0].message
    assert followed.store.peers.origins() == ()


def test_it_still_protects_from_another_key(followed: Person, alice: Person) -> None:
    """A change of key that the old key signed is followed, as ever."""
    lose(followed)
    rekey(alice.store, now=NOW)
    alice.deposit("demo", range(50))
    alice.push()
    assert not followed.pull().findings


def test_an_older_copy_is_told_of(followed: Person, alice: Person, tmp_path: Path) -> None:
    peers = followed.store.root / "peers"
    copy(peers, tmp_path / "kept")
    alice.deposit("demo", range(50))
    alice.push()
    followed.pull()
    copy(tmp_path / "kept", peers)
    followed.pull()
    assert any("of it is left in peers" in text for text in followed.report.told)


def test_without_what_the_user_remembers_the_refs_tell(followed: Person) -> None:
    lose(followed, remembered=True)
    (found,) = faults(followed.store)
    assert (found.object, found.code) == ("peers", 5) and "origin/demo" in found.message
    followed.pull()
    assert any("cannot be told" in text for text in followed.report.told)
    assert faults(followed.store) == []


def test_whoever_only_pushes_has_lost_nothing(followed: Person, alice: Person) -> None:
    assert faults(alice.store) == []
    lose(alice, remembered=True)
    assert faults(alice.store) == []


@pytest.mark.parametrize("name", ["verifier", "checkpoint"])
def test_damage_in_the_copy_here_is_not_laid_at_the_remotes_door(
    followed: Person, alice: Person, name: str
) -> None:
    """Where its hint leads, the copy is taken anew and nothing is wrong."""
    origin = alice.store.log.origin
    path = followed.store.root / "peers" / origin / name
    path.write_bytes(b"")
    (found, *_) = followed.fetch().findings
    assert "copy here is damaged: kvg fsck --repair" in str(found.hint)
    (fault,) = faults(followed.store)
    assert fault.object == f"peers/{origin}" and "kvg fetch" in str(fault.hint)
    assert [*fsck(followed.store, repair=True)]
    assert followed.fetch().findings == [] and faults(followed.store) == []


def test_a_publisher_that_is_gone_is_named_and_a_fetch_brings_it(
    followed: Person, alice: Person
) -> None:
    path = followed.store.root / "peers" / alice.store.log.origin / "publisher"
    whole = path.read_bytes()
    path.unlink()
    (fault,) = faults(followed.store)
    assert fault.object.endswith("/publisher") and fault.hint == "kvg fetch REMOTE"
    assert followed.fetch().findings == [] and path.read_bytes() == whole
    assert faults(followed.store) == []


def test_each_receipt_that_is_gone_is_named_and_made_anew(followed: Person, alice: Person) -> None:
    folder = followed.store.root / "peers" / alice.store.log.origin / "receipts"
    names = sorted(path.name for path in folder.iterdir())
    assert len(names) == 2
    (folder / names[0]).unlink()
    (fault,) = faults(followed.store)
    assert fault.object.endswith(names[0]) and fault.code == 5
    shutil.rmtree(folder)
    assert len(faults(followed.store)) == 2
    assert [*fsck(followed.store, repair=True)]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert faults(followed.store) == []


def test_what_went_out_and_came_back_needs_no_receipt(
    alice: Person, bob: Person, share: Path
) -> None:
    """Bob's log repeats what Alice deposited: it did not come from there."""
    alice.deposit("demo")
    alice.push()
    bob.clone(share, alice)
    bob.deposit("his", range(60))
    bob.push("his")
    assert not alice.pull(trust=[bob.key.public.keyid]).findings
    assert faults(alice.store) == [] and faults(bob.store) == []
    assert list((alice.store.root / "peers" / bob.store.log.origin / "receipts").iterdir())


def test_a_copy_in_the_place_of_another_is_named(followed: Person, alice: Person) -> None:
    folder = followed.store.root / "peers"
    shutil.copytree(folder / alice.store.log.origin, folder / "kvg-0123")
    found = {fault.object: fault for fault in faults(followed.store)}
    assert f"is the log {alice.store.log.origin}" in found["peers/kvg-0123"].message
    assert found["peers/kvg-0123"].code == 6
    assert [*fsck(followed.store, repair=True)] and faults(followed.store) == []
