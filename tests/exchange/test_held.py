"""Refs that moved at their publisher's and were not pushed: readers see what was, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvg.digest import Digest
from kvg.flow.forget import forget
from kvg.remote.layout import Pointer, encode_pointer, parse_pointer
from kvg.store import ANY, RefMove
from tests.exchange.conftest import Person
from tests.exchange.test_crash import check_nothing_partial
from tests.exchange.test_every_kind import Place, oci_server, place, s3_server, ssh_server  # noqa: F401


def pointer_at(share: Path, name: str) -> Pointer:
    return parse_pointer((share / "refs" / name).read_bytes(), what=name)


def put(share: Path, name: str, pointer: Pointer) -> None:
    (share / "refs" / name).chmod(0o644)
    (share / "refs" / name).write_bytes(encode_pointer(pointer))


def third(tmp_path: Path, name: str = "third") -> Person:
    return Person.make(tmp_path / name)


@pytest.fixture
def older(alice: Person, bob: Person, share: Path) -> Digest:
    """Both refs are there; ``demo`` and ``other`` then move at Alice's."""
    older = alice.deposit("demo", range(5, 20))
    alice.deposit("other", range(5, 21))
    alice.push()
    bob.clone(share, alice)
    alice.deposit("demo", range(5, 30))
    alice.deposit("other", range(5, 31))
    return older


def test_what_was_not_pushed_is_seen_as_it_was(
    alice: Person, bob: Person, share: Path, tmp_path: Path, older: Digest
) -> None:
    assert not alice.push("other").findings
    assert not bob.pull().findings
    assert bob.store.ref("demo") == older and bob.store.ref("other") == alice.store.ref("other")
    new = third(tmp_path)
    assert not new.clone(share, alice).findings
    assert new.store.ref("demo") == older
    check_nothing_partial(new)
    assert not alice.push().findings
    assert not bob.pull().findings and bob.store.ref("demo") == alice.store.ref("demo")


def test_what_was_removed_here_stays_there_as_it_was(
    alice: Person, bob: Person, share: Path, tmp_path: Path, older: Digest
) -> None:
    alice.store.publish([RefMove("demo", None, ANY)])
    assert not alice.push().findings
    assert not bob.pull().findings and bob.store.ref("demo") == older
    new = third(tmp_path)
    assert not new.clone(share, alice).findings and new.store.ref("demo") == older


def test_what_was_forgotten_here_stays_there_as_it_was(
    alice: Person, bob: Person, share: Path, older: Digest
) -> None:
    tuple(forget(alice.store, alice.settings, ["demo"]))
    assert not alice.push().findings
    assert not bob.pull().findings and bob.store.ref("demo") == older


def test_a_ref_that_went_back_and_forth(
    alice: Person, bob: Person, share: Path, older: Digest
) -> None:
    alice.store.publish([RefMove("demo", older, ANY)])
    assert not alice.push().findings
    assert not bob.pull().findings and bob.store.ref("demo") == older


def test_a_pointer_that_was_moved_back_is_refused_with_every_note_that_was_signed(
    alice: Person, bob: Person, share: Path, tmp_path: Path, older: Digest
) -> None:
    before = pointer_at(share, "demo")
    alice.push("other")
    assert pointer_at(share, "demo") == before
    alice.push("demo")
    put(share, "demo", before)
    assert bob.pull("demo").codes == [6]
    new = third(tmp_path)
    assert set(new.clone(share, alice).codes) == {6}


def test_nothing_is_signed_for_a_pointer_that_was_moved_back(
    alice: Person, bob: Person, share: Path, older: Digest
) -> None:
    before = pointer_at(share, "demo")
    alice.push("demo")
    put(share, "demo", before)
    alice.push("other")
    assert bob.pull("demo").codes == [6]


@pytest.mark.parametrize("change", ["another index", "cut", "another size"])
def test_a_note_that_is_not_the_owners(
    alice: Person, bob: Person, share: Path, older: Digest, change: str
) -> None:
    alice.push("other")
    (note,) = (share / "logs").glob("*/held/*")
    note.chmod(0o644)
    data = note.read_bytes()
    if change == "another size":
        note.rename(note.with_name("7"))
    elif change == "cut":
        note.write_bytes(data[:-20])
    else:
        index = str(pointer_at(share, "demo").index).encode()
        note.write_bytes(data.replace(b"\n" + index + b" demo", b"\n3 demo"))
    assert set(bob.pull("demo").codes) <= {5, 6} and bob.pull("demo").codes


def test_over_every_kind(place: Place, tmp_path: Path) -> None:  # noqa: F811
    alice = Person.make(tmp_path / "a", place.access).init().add(place.to)
    older = alice.deposit("demo", range(5, 20))
    alice.deposit("other", range(5, 21))
    alice.push()
    alice.deposit("demo", range(5, 30))
    other = alice.deposit("other", range(5, 31))
    assert not alice.push("other").findings
    bob = Person.make(tmp_path / "b", place.access)
    assert not bob.clone(place.source, alice).findings
    assert bob.store.ref("demo") == older and bob.store.ref("other") == other
