"""Names: what is none is a bad command line, and no ref of one's own goes by a remote's name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kvg.errors import UsageError
from kvg.flow.refs import mv, tag
from kvg.flow.remote import remote_add
from tests.exchange.conftest import Person

NAMES = ["Bad Name", "../x", "h1@{1}", "http://alice:S3CR3T@h/x"]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_name_of_a_ref_is_a_bad_command_line(
    alice: Person, share: Path, name: str
) -> None:
    alice.deposit("demo")
    alice.push()
    ways: list[Callable[[], object]] = [
        lambda: alice.pull(name),
        lambda: alice.fetch(name),
        lambda: alice.push(name),
        lambda: alice.push(name, delete=True),
        lambda: remote_add(alice.store, alice.settings, name, str(share)),
        lambda: tag(alice.store, alice.settings, name, "demo", force=False),
    ]
    for ask in ways:
        with pytest.raises(UsageError) as told:
            ask()
        assert "S3CR3T" not in f"{told.value.message}{told.value.hint}"


def test_no_ref_of_ones_own_goes_by_a_remote_s_name(alice: Person, bob: Person) -> None:
    """It would say what that had, go with the next fetch, and its artifact with the next gc."""
    alice.deposit("demo")
    for make in (
        lambda: tag(alice.store, alice.settings, "origin/mine", "demo", force=False),
        lambda: mv(alice.store, alice.settings, "demo", "origin/mine"),
        lambda: alice.store.check_own_name("origin/mine"),
    ):
        with pytest.raises(UsageError, match="the remote origin"):
            make()
    assert set(alice.store.refs()) == {"demo"}
    with pytest.raises(UsageError, match="solved"):
        remote_add(alice.store, alice.settings, "solved", "elsewhere")


def test_a_ref_there_that_goes_by_the_name_of_a_remote_here_is_not_taken(
    alice: Person, bob: Person, share: Path
) -> None:
    alice.deposit("team/notes")
    alice.deposit("demo", range(40))
    alice.push()
    bob.clone(share, alice)
    bob.store.set_ref("team/notes", None)
    remote_add(bob.store, bob.settings, "team", str(share.parent / "team"))
    taken = bob.pull()
    assert taken.codes == [2] and "the remote team" in taken.findings[0].message
    assert "team/notes" not in bob.store.refs()
