"""A publisher's log gets a new key: who knew the old one follows, and no other hand is followed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvg.signing.keys import generate
from kvg.signing.note import encode_verifier
from kvg.store.rekey import rekey
from kvg.verify import check_store
from tests.artifacts import NOW
from tests.exchange.conftest import Person
from tests.exchange.test_crash import copy, killed_at, steps_of
from tests.store.faults import quick_folder


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with quick_folder() as folder:
        yield folder


def new_key(person: Person) -> None:
    rekey(person.store, now=NOW)


def test_a_reader_follows_one_change_or_several(alice: Person, bob: Person, share: Path) -> None:
    alice.deposit("demo")
    alice.push()
    bob.clone(share, alice)
    new_key(alice)
    newer = alice.deposit("demo", range(40))
    assert not alice.push().findings
    assert not bob.pull().findings and bob.store.ref("demo") == newer
    new_key(alice)
    new_key(alice)
    alice.deposit("other", range(50))
    assert not alice.push().findings
    assert not bob.pull().findings
    kept = bob.store.peers.log(alice.store.log.origin)
    assert kept is not None and kept.verifier == alice.store.log.verifier
    *findings, _ = check_store(bob.store)
    assert not findings
    assert alice.push().transfer.bytes == 0 and bob.pull().transfer.objects_sent == 0


def test_a_first_contact_after_it(alice: Person, bob: Person, share: Path) -> None:
    new_key(alice)
    alice.deposit("demo")
    alice.push()
    assert bob.clone(share, alice).states == {"demo": "new"}
    new_key(alice)
    assert not alice.push().findings
    assert not bob.pull().findings


def test_a_bundle_carries_it(alice: Person, bob: Person, share: Path, tmp_path: Path) -> None:
    from kvg.flow.bundle import bundle_apply, bundle_create

    alice.deposit("demo")
    alice.push()
    bob.clone(share, alice)
    new_key(alice)
    newer = alice.deposit("demo", range(40))
    bundle_create(alice.store, alice.settings, tmp_path / "b.tar")
    tuple(bundle_apply(bob.store, bob.settings, tmp_path / "b.tar"))
    assert bob.store.ref("demo") == newer


@pytest.mark.parametrize("lie", ["a key of nobody's", "no word of the old key", "a missing word"])
def test_a_change_by_another_hand_is_refused(
    alice: Person, bob: Person, share: Path, lie: str
) -> None:
    older = alice.deposit("demo")
    alice.push()
    bob.clone(share, alice)
    origin = alice.store.log.origin
    folder = share / "logs" / origin
    before = (folder / "verifier").read_bytes()
    new_key(alice)
    alice.deposit("demo", range(40))
    alice.push()
    assert (folder / "verifier").read_bytes() != before
    (note,) = (folder / "rekey").iterdir()
    note.chmod(0o644)
    if lie == "a key of nobody's":
        path = folder / "verifier"
        path.chmod(0o644)
        path.write_text(encode_verifier(origin, generate().public) + "\n")
    elif lie == "no word of the old key":
        *lines, _, last = note.read_text().splitlines()
        note.write_text("\n".join([*lines, last]) + "\n")
    else:
        note.unlink()
    found = bob.pull()
    assert found.codes and set(found.codes) <= {5, 6}
    assert bob.store.ref("demo") == older
    *findings, _ = check_store(bob.store)
    assert not findings


@pytest.mark.slow
def test_cut_at_every_step(alice: Person, bob: Person, share: Path, tmp_path: Path) -> None:
    alice.deposit("demo")
    alice.push()
    bob.clone(share, alice)
    new_key(alice)
    newer = alice.deposit("demo", range(40))
    for name, person in (("alice0", alice), ("bob0", bob)):
        copy(person.folder, tmp_path / name)
    copy(share, tmp_path / "share0")
    total = steps_of(alice.push)
    every = 1 if os.environ.get("KVG_CUT_ALL") else 23
    for at in range(1, total + 1, every):
        copy(tmp_path / "share0", share)
        copy(tmp_path / "alice0", alice.folder)
        copy(tmp_path / "bob0", bob.folder)
        killed_at(alice.push, at)
        assert set(bob.pull().codes) <= {6}
        again = alice.push()
        assert not again.findings, again.findings
        assert not bob.pull().findings and bob.store.ref("demo") == newer
    copy(tmp_path / "bob0", bob.folder)
    steps = steps_of(bob.pull)
    for at in range(1, steps + 1, every):
        copy(tmp_path / "bob0", bob.folder)
        killed_at(bob.pull, at)
        assert not bob.pull().findings and bob.store.ref("demo") == newer
