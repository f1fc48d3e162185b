"""A pointer put back to what it was: told by whoever saw it go on, whosever log it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvg.digest import sha256
from kvg.flow.exchange.going_back import is_known, standing
from kvg.flow.refs import tag
from kvg.flow.status import remote_state
from tests.exchange.conftest import Person

A, B, C, D = (sha256(text.encode()) for text in "abcd")


@pytest.fixture
def carol(share: Path) -> Person:
    return Person.make(share.parent / "carol")


def pointer(share: Path, name: str = "demo") -> Path:
    return share / "refs" / name


def know(person: Person, *others: Person) -> None:
    for other in others:
        person.pull(trust=[other.key.public.keyid])


def test_an_older_entry_of_another_log_is_not_followed(
    alice: Person, bob: Person, carol: Person, share: Path
) -> None:
    """Bob's entry is the newest of its name in Bob's log: nothing in that log tells."""
    bob.init().add(share)
    first = bob.deposit("demo")
    bob.push()
    old = pointer(share).read_bytes()
    know(alice, bob)
    second = alice.deposit("demo", range(40))
    assert alice.push().states == {"demo": "moved"}
    carol.clone(share, alice, bob)
    know(bob, alice)
    assert carol.store.ref("demo") == bob.store.ref("demo") == second
    bob.store.set_ref("demo", first)  # moves on here, and is not pushed
    bob.store.set_ref("demo", second)
    pointer(share).write_bytes(old)
    for person in (alice, bob, carol):
        told = person.pull()
        assert told.codes == [6] and "was moved back" in told.findings[0].message
        assert person.store.ref("demo") == person.store.ref("origin/demo") == second
        assert "kvg push origin demo" in (told.findings[0].hint or "")
    assert carol.push().states == {"demo": "new"}
    assert any("it is replaced" in text for text in carol.report.told)
    know(alice, carol)
    assert alice.pull().states == {"demo": "unchanged"}


def test_an_entry_that_may_stay_is_not_gone_back_to(
    alice: Person, bob: Person, share: Path
) -> None:
    """What is signed of it is signed for a size of the log that the next push may have, too."""
    first = alice.deposit("demo")
    other = alice.deposit("other", range(40))
    alice.push()
    old = pointer(share).read_bytes()
    tag(alice.store, alice.settings, "demo", "other", force=True)
    assert alice.push("other", read_back=True).states["other"] == "unchanged"
    bob.clone(share, alice)
    assert bob.store.ref("demo") == first
    assert alice.push("demo").states == {"demo": "moved"}
    assert bob.pull().states["demo"] == "moved"
    pointer(share).write_bytes(old)
    told = bob.pull()
    assert told.codes == [6] and bob.store.ref("demo") == other


def test_who_goes_back_on_purpose_is_followed(alice: Person, bob: Person, share: Path) -> None:
    first = alice.deposit("demo")
    alice.push()
    bob.clone(share, alice)
    bob.deposit("demo", range(40))
    bob.push()
    know(alice, bob)
    alice.store.set_ref("demo", first)
    assert alice.push().states["demo"] == "moved"
    know(bob, alice)
    assert bob.store.ref("demo") == first


def test_what_moved_on_unseen_is_followed(
    alice: Person, bob: Person, carol: Person, share: Path
) -> None:
    """Carol saw the second value, and Bob, who moved it last, never did; Alice went on from it."""
    alice.deposit("demo")
    alice.push()
    bob.clone(share, alice)
    alice.deposit("demo", range(40))
    alice.push()
    carol.clone(share, alice)
    alice.deposit("demo", range(41))
    alice.push()
    bob.pull()
    newest = bob.deposit("demo", range(42))
    bob.deposit("more", range(43))
    bob.push("more")
    know(carol, bob)  # Bob's entry is known to her before its pointer moves
    pointer_was = carol.store.ref("origin/demo")
    bob.push()
    assert carol.pull().codes == [] and carol.store.ref("demo") == newest != pointer_was


def test_what_lies_there_and_says_nothing_is_not_replaced_by_an_older_value(
    alice: Person, bob: Person, share: Path
) -> None:
    alice.deposit("demo")
    alice.push()
    bob.clone(share, alice)
    second = alice.deposit("demo", range(40))
    alice.push()
    pointer(share).write_bytes(b"garbage")
    refused = bob.push("demo")
    assert refused.codes == [4] and "never was here" in refused.findings[0].message
    assert pointer(share).read_bytes() == b"garbage"
    assert alice.push("demo").states == {"demo": "new"}
    assert bob.pull().states == {"demo": "moved"} and bob.store.ref("demo") == second
    assert remote_state(bob.store, "origin").behind == 0


@pytest.mark.parametrize(
    ("wanted", "known", "others", "found"),
    [
        (A, [A], [], True),
        (B, [A], [], False),
        (A, [B], [(A, B)], True),
        (B, [A], [(A, B)], False),
        (A, [C], [(B, C), (A, B)], True),
        (C, [B], [(A, B), (B, C, D)], False),
        (C, [D], [(A, B), (B, C, D)], True),
    ],
)
def test_what_is_known(
    wanted: str, known: list[str], others: list[tuple[str, ...]], found: bool
) -> None:
    assert is_known(wanted, known, others) is found


@pytest.mark.parametrize(
    ("orders", "wanted"),
    [
        ({"x": (A,)}, {"x": A}),
        ({"x": (A, B), "y": (A,)}, {"x": B}),
        ({"x": (A, B), "y": (A, C)}, {"x": B, "y": C}),
        ({"x": (A, B), "y": (A, B)}, {"x": B, "y": B}),
    ],
)
def test_what_stands(orders: dict[str, tuple[str, ...]], wanted: dict[str, str]) -> None:
    newest = {origin: order[-1] for origin, order in orders.items()}
    assert standing(newest, orders) == wanted
