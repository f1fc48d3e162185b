"""What pull, push and status make of a ref that moved here, there, on both sides, and back."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvg.errors import Conflict
from kvg.flow.bundle import bundle_apply, bundle_create
from kvg.flow.lock import lock
from kvg.flow.pull import pull
from kvg.flow.remote import remote_set
from kvg.flow.status import remote_state
from kvg.remote.layout import object_name
from kvg.store import ANY, RefMove
from tests.exchange.conftest import Outcome, Person


def standing(person: Person) -> tuple[int, int]:
    """(ahead, behind) of origin."""
    state = remote_state(person.store, "origin")
    return state.ahead, state.behind


def move(person: Person, digest: object) -> None:
    person.store.publish([RefMove("demo", digest, ANY)])


def test_a_pull_leaves_what_was_not_pushed_yet(alice: Person, share: Path) -> None:
    first = alice.deposit("demo")
    alice.push()
    second = alice.deposit("demo", range(40))
    assert standing(alice) == (1, 0)
    assert alice.pull().states == {"demo": "unchanged"}
    assert alice.store.ref("demo") == second
    move(alice, first)
    move(alice, second)
    assert alice.push().states == {"demo": "moved"}
    move(alice, first)  # back on purpose, not pushed yet
    assert alice.pull().states == {"demo": "unchanged"} and alice.store.ref("demo") == first


def test_a_pull_leaves_what_was_not_pushed_yet_of_another_publishers_ref(
    alice: Person, bob: Person, share: Path
) -> None:
    first = alice.deposit("demo")
    alice.push()
    bob.clone(share, alice)
    second = alice.deposit("demo", range(40))
    alice.push()
    bob.pull()
    move(bob, first)
    assert standing(bob) == (1, 0)
    assert bob.pull().states == {"demo": "unchanged"}
    assert bob.store.ref("demo") == first and bob.store.ref("origin/demo") == second
    bob.fetch()
    assert bob.pull().states == {"demo": "unchanged"} and standing(bob) == (1, 0)
    third = bob.deposit("demo", range(41))
    assert bob.pull().states == {"demo": "unchanged"} and bob.store.ref("demo") == third


@pytest.mark.parametrize("fetches_first", [False, True])
def test_a_publisher_that_goes_back_is_followed(
    alice: Person, bob: Person, share: Path, fetches_first: bool
) -> None:
    first = alice.deposit("demo")
    alice.push()
    bob.clone(share, alice)
    second = alice.deposit("demo", range(40))
    for digest in (second, first, second, first):
        if alice.store.ref("demo") != digest:
            move(alice, digest)
        alice.push()
        if fetches_first:
            bob.fetch()
            assert standing(bob) == (0, 1)
        assert bob.pull().states == {"demo": "moved"}
        assert bob.store.ref("demo") == digest and standing(bob) == (0, 0)


def test_a_push_does_not_undo_what_another_moved_back(
    alice: Person, bob: Person, share: Path
) -> None:
    first = alice.deposit("demo")
    alice.push()
    bob.clone(share, alice)
    alice.deposit("demo", range(40))
    alice.push()
    bob.pull()
    move(alice, first)
    alice.push()
    refused = bob.push()
    assert refused.codes == [4] and "kvg pull origin demo" in (refused.findings[0].hint or "")
    assert bob.pull().states == {"demo": "moved"} and bob.store.ref("demo") == first
    newer = bob.deposit("demo", range(41))
    assert bob.push().states == {"demo": "moved"}
    assert alice.pull(trust=[bob.key.public.keyid]).states == {"demo": "moved"}
    assert alice.store.ref("demo") == newer


def test_a_pointer_moved_back_by_hand_is_told_to_its_owner(alice: Person, share: Path) -> None:
    alice.deposit("demo")
    alice.push()
    before = (share / "refs" / "demo").read_bytes()
    newer = alice.deposit("demo", range(40))
    alice.push()
    (share / "refs" / "demo").write_bytes(before)
    assert alice.pull().codes == [6] and alice.store.ref("demo") == newer
    assert alice.push().states == {"demo": "new"}
    assert any("it is replaced" in text for text in alice.report.told)
    assert alice.pull().states == {"demo": "unchanged"}


def test_ones_own_older_bundle_moves_nothing(alice: Person) -> None:
    alice.deposit("demo")
    bundle_create(alice.store, alice.settings, Path("a.tar"))
    newer = alice.deposit("demo", range(40))
    taken = Outcome(tuple(bundle_apply(alice.store, alice.settings, Path("a.tar"))))
    assert taken.states == {"demo": "unchanged"} and alice.store.ref("demo") == newer


def test_of_a_bundle_nobody_knows_who_went_back(alice: Person, bob: Person) -> None:
    first = alice.deposit("demo")
    bob.init()
    keys = (alice.key.public.keyid,)

    def apply(name: str) -> Outcome:
        bundle_create(alice.store, alice.settings, Path(name))
        path = alice.folder / name
        return Outcome(tuple(bundle_apply(bob.store, bob.settings, path, trust=keys)))

    assert apply("a.tar").states == {"demo": "new"}
    alice.deposit("demo", range(40))
    assert apply("b.tar").states == {"demo": "moved"}
    move(alice, first)
    told = apply("c.tar")
    assert told.codes == [4] and f"kvg tag -f demo {first[:13]}" in (told.findings[0].hint or "")


def test_a_lock_file_is_kept_or_told_of(alice: Person, share: Path) -> None:
    file = Path("kvg.lock")
    first = alice.deposit("demo")
    list(lock(alice.store, alice.settings, file, ()))
    alice.push()
    alice.deposit("demo", range(40))
    alice.push()
    taken = Outcome(tuple(pull(alice.store, alice.settings, lock=file)))
    assert taken.states == {"demo": "moved"} and alice.store.ref("demo") == first
    newest = alice.deposit("demo", range(41))
    told = Outcome(tuple(pull(alice.store, alice.settings, lock=file)))
    assert told.codes == [4] and alice.store.ref("demo") == newest
    list(lock(alice.store, alice.settings, file, ()))  # a value that never was there
    told = Outcome(tuple(pull(alice.store, alice.settings, lock=file)))
    assert told.codes == [4] and "never did" in told.findings[0].message


def damage(share: Path, digest: str) -> bytes:
    """Flip a bit of an object there; gives its bytes as they were."""
    path = share / object_name(digest)
    good = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    return good


def refused(person: Person) -> int:
    return remote_state(person.store, "origin").refused


def test_what_a_pull_refuses_is_not_up_to_date(alice: Person, bob: Person, share: Path) -> None:
    """Neither a ref that is new there, nor one whose newer value is refused."""
    alice.deposit("other", range(60, 90))
    first = alice.deposit("demo")
    alice.push()
    page = alice.store.manifest(first).pages[0].digest
    good = damage(share, page)
    assert bob.clone(share, alice).codes == [5]
    state = remote_state(bob.store, "origin")
    assert (state.seen, state.ahead, state.behind, state.refused) == (True, 0, 0, 1)
    assert bob.fetch("other").codes == [] and refused(bob) == 1, "of what was not looked at"
    (share / object_name(page)).write_bytes(good)
    assert bob.pull().states == {"demo": "new", "other": "unchanged"} and refused(bob) == 0
    second = alice.deposit("demo", range(40, 80))
    alice.push()
    damage(share, alice.store.manifest(second).tokens.digest)
    assert bob.pull("demo", dry_run=True).codes == [] and refused(bob) == 0
    assert bob.pull("demo").codes == [5] and refused(bob) == 1
    assert bob.store.ref("demo") == first and standing(bob) == (0, 0)
    remote_set(bob.store, bob.settings, "origin", url=str(share.parent / "else"), codec=None)
    assert not remote_state(bob.store, "origin").seen


def test_a_ref_that_is_gone_there_is_refused_no_more(
    alice: Person, bob: Person, share: Path
) -> None:
    alice.deposit("kept")
    alice.push()
    bob.clone(share, alice)
    digest = alice.deposit("demo", range(60, 90))
    alice.push()
    damage(share, alice.store.manifest(digest).pages[0].digest)
    assert bob.pull().codes == [5] and refused(bob) == 1
    alice.push("demo", delete=True)
    assert bob.pull().codes == [] and refused(bob) == 0


def test_a_dry_run_counts_what_would_come(alice: Person, bob: Person, share: Path) -> None:
    alice.deposit("demo")
    alice.push()
    bob.clone(share, alice)
    alice.deposit("demo", range(40))
    alice.deposit("more", range(7, 60))
    alice.push()
    before = sorted(bob.store.objects.all())
    would = bob.pull(dry_run=True).transfer
    assert sorted(bob.store.objects.all()) == before
    done = bob.pull().transfer
    assert would.objects_sent == done.objects_sent > 0
    assert bob.pull(dry_run=True).transfer.objects_sent == 0


def test_who_is_outrun_is_told_which_remote_to_pull(
    alice: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    def outrun(self: object, name: str, *_: object, **__: object) -> None:
        raise Conflict(f"{name}: moved meanwhile", hint="kvg pull, then push again")

    monkeypatch.setattr("kvg.remote.file_remote.FileRemote.move", outrun)
    alice.deposit("demo")
    (finding,) = alice.push().findings
    assert finding.hint == "kvg pull origin demo, then push again"


def test_what_a_lock_file_moved_back_is_behind(
    alice: Person, bob: Person, share: Path, tmp_path: Path
) -> None:
    first = alice.deposit("demo")
    alice.push()
    tuple(lock(alice.store, alice.settings, tmp_path / "kvg.lock", ["demo"]))
    second = alice.deposit("demo", range(40))
    alice.push()
    bob.clone(share, alice)
    locked = pull(bob.store, bob.settings, lock=tmp_path / "kvg.lock")
    assert Outcome(tuple(locked)).states == {"demo": "moved"}
    assert bob.store.ref("demo") == first and bob.store.ref("origin/demo") == second
    assert standing(bob) == (0, 1)
    bob.deposit("mine", range(20))
    outcome = bob.push()
    assert outcome.codes == [4] and outcome.states == {"mine": "new"}
    assert not alice.pull(trust=[bob.key.public.keyid]).findings
    assert alice.store.ref("demo") == second
    assert bob.pull().states["demo"] == "moved" and bob.store.ref("demo") == second
