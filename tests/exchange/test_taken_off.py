"""A ref that somebody took off a remote, and refs that a filter leaves there."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvg.flow.remote import remote_list, remote_set, remote_show
from kvg.flow.status import remote_state
from tests.exchange.conftest import Person


@pytest.fixture
def third(alice: Person, bob: Person, share: Path) -> Person:
    """Bob, who has a ref that Alice then took off."""
    alice.deposit("demo")
    alice.deposit("third", range(30))
    alice.push()
    bob.clone(share, alice)
    alice.push("third", delete=True)
    return bob


def test_a_fetch_sees_that_it_is_gone(third: Person) -> None:
    assert third.fetch("demo").states == {"demo": "unchanged"}
    assert third.store.ref("origin/third") is not None  # nobody looked
    outcome = third.fetch()
    assert outcome.states == {"demo": "unchanged", "third": "gone"} and not outcome.findings
    assert third.store.ref("origin/third") is None and third.store.ref("third") is not None
    assert remote_state(third.store, "origin").ahead == 1
    assert third.fetch().states == {"demo": "unchanged"}


def test_a_dry_run_says_so_and_leaves_it(third: Person) -> None:
    assert third.pull(dry_run=True).states["third"] == "gone"
    assert third.store.ref("origin/third") is not None
    assert third.pull().states["third"] == "gone"


def test_a_push_without_names_leaves_it_off(third: Person, share: Path) -> None:
    third.pull()
    third.deposit("mine", range(20))
    assert third.push(dry_run=True).states == {"demo": "unchanged", "mine": "new"}
    assert third.push().states == {"demo": "unchanged", "mine": "new"}
    assert any("third: was taken off origin" in text for text in third.report.told)
    assert third.push("third").states == {"third": "new"}
    assert third.push().states["third"] == "unchanged"


def test_who_took_it_off_does_not_put_it_back_unasked(third: Person, alice: Person) -> None:
    assert alice.push().states == {"demo": "unchanged"}
    assert any("third: was taken off origin" in text for text in alice.report.told)
    assert alice.push("third").states == {"third": "new"}


def test_what_moved_since_goes(third: Person) -> None:
    third.pull()
    third.deposit("third", range(33))
    assert third.push().states["third"] == "new"


def test_another_place_under_the_name_gets_all(third: Person, tmp_path: Path) -> None:
    third.pull()
    remote_set(third.store, third.settings, "origin", url=str(tmp_path / "other"), codec=None)
    assert third.push().states == {"demo": "new", "third": "new"}


def test_a_remote_that_is_refused_shows_nothing_gone(third: Person, share: Path) -> None:
    (share / "refs/demo").chmod(0o644)
    (share / "refs/demo").write_bytes(b"no pointer")
    assert third.fetch().codes == [5]
    assert third.store.ref("origin/third") is not None


def test_a_filter_is_remembered(alice: Person, bob: Person, share: Path) -> None:
    alice.deposit("docs/a")
    alice.deposit("b", range(30))
    alice.push()
    assert bob.clone(share, alice, pattern="docs/*").states == {"docs/a": "new"}
    assert bob.pull().states == bob.fetch().states == {"docs/a": "unchanged"}
    (listed,) = remote_list(bob.store)
    assert (listed.filter, next(iter(remote_show(bob.store, bob.settings, None)))) == (
        "docs/*",
        listed,
    )
    assert bob.pull("b").states == {"b": "new"}  # what is named comes
    assert bob.pull().states == {"docs/a": "unchanged"}
    assert bob.store.ref("origin/b") is not None  # it is there, only not asked for
    done = remote_set(bob.store, bob.settings, "origin", url=None, codec=None, pattern="")
    assert done.filter is None
    assert bob.pull().states == {"b": "unchanged", "docs/a": "unchanged"}


def test_a_name_too_long_to_be_tracked_holds_up_nothing_else(
    alice: Person, bob: Person, share: Path
) -> None:
    long = "n" * 250
    alice.deposit("demo")
    alice.deposit(long, range(30))
    outcome = alice.push()
    assert outcome.codes == [2] and outcome.states == {"demo": "new"}
    assert remote_state(alice.store, "origin").seen
    (share / "refs" / long).write_bytes((share / "refs/demo").read_bytes())
    assert set(bob.clone(share, alice).states) == {"demo"}
    assert alice.push(long, delete=True).states == {long: "deleted"}


def test_a_long_name_from_another_remote_is_left_out(
    alice: Person, bob: Person, share: Path
) -> None:
    long = "n" * 250
    alice.deposit("demo")
    alice.deposit(long, range(30))
    alice.add(share, "o").store.config.remove_table("remote", "origin")
    assert not alice.push().findings  # o/… is short enough
    outcome = bob.clone(share, alice)
    assert outcome.codes == [2] and outcome.states == {"demo": "new"}
    (finding,) = outcome.findings
    assert "too long" in finding.message
