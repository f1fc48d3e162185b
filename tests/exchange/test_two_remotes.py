"""One publisher, two remotes: the one that is behind is read, and nothing ever goes back."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from kvg.digest import Digest
from kvg.flow.fetch import fetch
from kvg.flow.push import push
from kvg.flow.records.exchange import RemoteCollected, RemoteRefEntry
from kvg.flow.remote import remote_remove, remote_set, remote_show
from kvg.flow.remote_gc import remote_gc
from kvg.remote.layout import Pointer, encode_pointer, parse_pointer
from kvg.store import ANY, RefMove
from kvg.store.rekey import rekey
from kvg.verify import check_store
from kvg.verify.findings import Finding
from kvg.verify.fsck import fsck
from tests.artifacts import NOW
from tests.exchange.conftest import Outcome, Person


def pushed(person: Person, remote: str, refs: Sequence[str] = (), **more: bool) -> Outcome:
    return Outcome(tuple(push(person.store, person.settings, remote, refs, **more)))


def fetched(person: Person, remote: str) -> Outcome:
    return Outcome(tuple(fetch(person.store, person.settings, remote)))


def put_back(saved: Path, place: Path) -> None:
    shutil.rmtree(place)
    shutil.copytree(saved, place)


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvg.flow.exchange.reading.BETWEEN_LOG_AND_POINTER_S", 0.0)


@pytest.fixture
def other(tmp_path: Path) -> Path:
    return tmp_path / "other"


@pytest.fixture
def demo(alice: Person, bob: Person, share: Path, other: Path) -> Digest:
    """Pushed to ``a``, the share, then to ``b``; Bob cloned ``b`` and has never asked ``a``."""
    digest = alice.deposit("demo")
    alice.add(share, "a").add(other, "b")
    assert not pushed(alice, "a").findings and not pushed(alice, "b").findings
    assert not bob.clone(other, alice).findings
    bob.add(share, "a")
    return digest


def test_a_remote_that_is_behind_is_read(bob: Person, demo: Digest) -> None:
    shown = tuple(remote_show(bob.store, bob.settings, "a"))
    assert [item.digest for item in shown if isinstance(item, RemoteRefEntry)] == [demo]
    outcome = fetched(bob, "a")
    assert not outcome.findings and outcome.states == {"demo": "new"}
    assert bob.store.ref("a/demo") == demo
    (collected,) = remote_gc(bob.store, bob.settings, "a")
    assert isinstance(collected, RemoteCollected) and collected.objects == 0
    assert not [item for item in check_store(bob.store) if isinstance(item, Finding)]
    assert not [item for item in fsck(bob.store) if isinstance(item, Finding)]


def test_what_is_known_here_stays(alice: Person, bob: Person, demo: Digest) -> None:
    peers, origin = bob.store.peers, alice.store.log.origin
    before = peers.log(origin), peers.publisher(origin)
    fetched(bob, "a")
    after = peers.log(origin), peers.publisher(origin)
    assert before[0] is not None and after[0] is not None
    assert (before[0].note, before[1]) == (after[0].note, after[1])


def test_a_pointer_that_is_not_the_newest_is_behind(
    alice: Person, bob: Person, demo: Digest
) -> None:
    newer = alice.deposit("demo", range(40))
    pushed(alice, "b")
    bob.pull()
    outcome = fetched(bob, "a")
    (finding,) = outcome.findings
    assert finding.code == 6 and "a is behind" in finding.message
    assert finding.hint is not None and "kvg push" in finding.hint
    assert bob.store.ref("a/demo") is None and bob.store.ref("demo") == newer
    assert pushed(alice, "a").states == {"demo": "moved"}
    assert not fetched(bob, "a").findings and bob.store.ref("a/demo") == newer


def test_a_remote_that_went_back_is_refused(
    alice: Person, bob: Person, share: Path, demo: Digest, tmp_path: Path
) -> None:
    shutil.copytree(share, tmp_path / "before")
    alice.deposit("more", range(30))
    pushed(alice, "a")
    assert not fetched(bob, "a").findings
    pushed(alice, "b")
    assert not bob.pull().findings
    put_back(tmp_path / "before", share)
    outcome = fetched(bob, "a")
    assert set(outcome.codes) == {6} and "rolled back" in outcome.findings[0].message
    assert outcome.transfer.refs == ()


def test_one_that_is_behind_can_go_back_too(
    alice: Person, bob: Person, share: Path, demo: Digest, tmp_path: Path
) -> None:
    """What ``a`` showed counts also where that was less than what ``b`` did."""
    shutil.copytree(share, tmp_path / "before")
    alice.deposit("more", range(30))
    pushed(alice, "a")
    pushed(alice, "b")
    assert not bob.pull().findings
    assert not fetched(bob, "a").findings
    put_back(tmp_path / "before", share)
    outcome = fetched(bob, "a")
    assert set(outcome.codes) == {6} and "rolled back" in outcome.findings[0].message


def test_a_pointer_past_what_the_log_there_says(
    alice: Person, bob: Person, share: Path, other: Path, demo: Digest
) -> None:
    alice.deposit("demo", range(40))
    pushed(alice, "b")
    bob.pull()
    (share / "refs/demo").chmod(0o644)
    shutil.copy(other / "refs/demo", share / "refs/demo")
    assert fetched(bob, "a").codes == [6]


def test_a_pointer_that_was_moved_back_there(
    alice: Person, bob: Person, share: Path, demo: Digest
) -> None:
    old = (share / "refs/demo").read_bytes()
    alice.deposit("demo", range(40))
    pushed(alice, "a")
    pushed(alice, "b")
    bob.pull()
    (share / "refs/demo").chmod(0o644)
    (share / "refs/demo").write_bytes(old)
    assert fetched(bob, "a").codes == [6] and bob.store.ref("a/demo") is None


def test_an_older_log_that_forked_is_refused(
    alice: Person, bob: Person, share: Path, demo: Digest, tmp_path: Path
) -> None:
    from kvg.log.entry import RefEntry, encode_entry
    from kvg.log.log import Log

    origin, key = alice.store.log.origin, alice.store.log_key()
    fork = Log.create(tmp_path / "fork", origin=origin, key=key, staging=tmp_path)
    fork.append([encode_entry(RefEntry(1, "demo", demo, None))], key)
    kept = bob.store.peers.log(origin)
    assert kept is not None and fork.size < kept.size
    there = share / "logs" / origin
    shutil.copy(there / "publisher", fork.folder / "publisher")
    put_back(fork.folder, there)
    (share / "refs/demo").chmod(0o644)
    (share / "refs/demo").write_bytes(encode_pointer(Pointer(origin, 0)))
    (finding,) = fetched(bob, "a").findings
    assert finding.code == 6 and "forked" in finding.message


def test_the_key_changed_since(alice: Person, bob: Person, demo: Digest) -> None:
    rekey(alice.store, now=NOW)
    alice.deposit("more", range(30))
    pushed(alice, "b")
    assert not bob.pull().findings
    assert not fetched(bob, "a").findings and bob.store.ref("a/demo") == demo
    assert not [item for item in fsck(bob.store) if isinstance(item, Finding)]


def test_another_place_under_the_name_has_shown_nothing(
    bob: Person, share: Path, demo: Digest, tmp_path: Path, alice: Person
) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(share, copied)
    alice.deposit("more", range(30))
    pushed(alice, "a")
    assert not fetched(bob, "a").findings
    remote_set(bob.store, bob.settings, "a", url=str(copied), codec=None)
    assert not fetched(bob, "a").findings
    remote_remove(bob.store, bob.settings, "a")
    assert not [*bob.store.root.glob("peers/*/seen/a")]


def log_there(share: Path, alice: Person) -> bytes:
    return (share / "logs" / alice.store.log.origin / "checkpoint").read_bytes()


def test_a_ref_that_went_and_came_back_is_brought_up_to_date(
    alice: Person, bob: Person, share: Path, demo: Digest
) -> None:
    alice.deposit("demo", range(40))
    pushed(alice, "b")
    alice.store.publish([RefMove("demo", demo, ANY)])
    pushed(alice, "b")
    bob.pull()
    assert fetched(bob, "a").codes == [6]
    assert pushed(alice, "a").states == {"demo": "unchanged"}
    assert not fetched(bob, "a").findings
    pushed(alice, "b")
    bob.pull()
    assert not fetched(bob, "a").findings  # behind again, and its pointer is the newest
    before = log_there(share, alice)
    pushed(alice, "a")
    assert log_there(share, alice) == before


def test_a_ref_that_its_owner_removed_is_brought_up_to_date(
    alice: Person, bob: Person, share: Path, demo: Digest
) -> None:
    alice.store.publish([RefMove("demo", None, ANY)])
    pushed(alice, "b")
    assert not bob.pull().findings
    assert fetched(bob, "a").codes == [6]
    pushed(alice, "a")
    assert not fetched(bob, "a").findings
    before = log_there(share, alice)
    pushed(alice, "a")
    assert log_there(share, alice) == before
    assert parse_pointer((share / "refs/demo").read_bytes(), what="demo")


def test_what_a_remote_showed_is_looked_after(bob: Person, demo: Digest) -> None:
    (seen,) = bob.store.root.glob("peers/*/seen/origin")
    data = bytearray(seen.read_bytes())
    data[-10] ^= 1
    seen.chmod(0o644)
    seen.write_bytes(data)
    (found,) = (item for item in fsck(bob.store) if isinstance(item, Finding))
    assert (
        found.object.endswith("/seen/origin")
        and found.hint == "kvg fsck --repair, then kvg fetch REMOTE"
    )
