"""``kvg remote gc``: what nothing needs goes, never beside a push, and never on a guess."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvg.errors import Conflict, RemoteFailed, UsageError
from kvg.flow.exchange import alive
from kvg.flow.forget import forget
from kvg.flow.fsck import fsck
from kvg.flow.push import Push, push
from kvg.flow.records import Finding
from kvg.flow.records.exchange import RemoteCollected
from kvg.flow.remote import remote_add
from kvg.flow.remote_gc import remote_gc
from kvg.remote import open_remote
from kvg.remote.file_remote import FileRemote
from kvg.remote.layout import object_name
from kvg.store import Store
from tests.exchange.conftest import Person
from tests.exchange.test_crash import killed_at
from tests.exchange.test_every_kind import Place, oci_server, place, s3_server, ssh_server  # noqa: F401
from tests.remote.programs import Ssh
from tests.unlistable import make_unlistable


def collect(person: Person, *, dry_run: bool = False) -> tuple[object, ...]:
    from dataclasses import replace

    return tuple(remote_gc(person.store, replace(person.settings, dry_run=dry_run), None))


def there(share: Path) -> set[str]:
    return {path.name for path in (share / "objects").rglob("*") if path.is_file()}


def test_what_no_ref_needs_goes_and_the_rest_stays(alice: Person, bob: Person, share: Path) -> None:
    old = alice.deposit("demo", range(5, 30))
    alice.push()
    kept = alice.deposit("demo", [*range(5, 21), *range(60, 68)])
    alice.push()
    before = there(share)
    (planned,) = collect(alice, dry_run=True)
    assert isinstance(planned, RemoteCollected) and planned.objects > 0
    assert there(share) == before
    (done,) = collect(alice)
    assert (done.objects, done.bytes, done.kept) == (planned.objects, planned.bytes, planned.kept)
    assert len(there(share)) == done.kept and not (share / object_name(old)).exists()
    assert bob.clone(share, alice).states == {"demo": "new"}
    assert bob.store.ref("demo") == kept
    (again,) = collect(alice)
    assert again.objects == 0
    assert not (share / "gc").exists() and not list((share / "pushing").iterdir())


def test_nothing_goes_where_refs_cannot_be_listed(
    alice: Person, bob: Person, share: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice.deposit("demo")
    alice.deposit("team/other", range(40, 60))
    alice.push()
    bob.clone(share, alice)
    before = there(share)
    with monkeypatch.context() as patch:
        make_unlistable(patch, share / "refs" / "team")
        with pytest.raises(RemoteFailed, match="team"):
            collect(alice)
        with pytest.raises(RemoteFailed, match="team"):
            bob.pull()
    assert there(share) == before
    assert bob.store.refs()["origin/team/other"] == alice.store.ref("team/other")


def test_what_another_publisher_needs_stays(alice: Person, bob: Person, share: Path) -> None:
    alice.deposit("demo")
    alice.push()
    bob.clone(share, alice)
    bobs = bob.deposit("bobs", range(33))
    bob.push()
    refused = collect(alice)
    assert [item.code for item in refused if isinstance(item, Finding)] == [6, 6]
    assert (share / object_name(bobs)).exists()
    alice.pull(trust=[bob.key.public.keyid])
    (done,) = collect(alice)
    assert done.objects == 0
    third = Person.make(share.parent / "third")
    assert not third.clone(share, alice, bob).findings


def test_a_ref_that_cant_be_proved_stops_it(alice: Person, share: Path) -> None:
    alice.deposit("demo")
    alice.push()
    alice.deposit("demo", range(40))
    alice.push()
    before = there(share)
    (share / "refs" / "strange").write_bytes(b"{}")
    assert any(isinstance(item, Finding) for item in collect(alice))
    assert there(share) == before and not (share / "gc").exists()


@pytest.fixture
def quick_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alive, "WATCH_S", 0.6)
    monkeypatch.setattr(alive, "BEAT_S", 0.05)


@pytest.mark.usefixtures("quick_watch")
def test_a_push_and_gc_give_way_to_each_other(alice: Person, bob: Person, share: Path) -> None:
    alice.deposit("demo")
    alice.push()
    bob.clone(share, alice)
    remote = open_remote(str(share), cwd=share)
    with (
        alive.announced(remote, bob.store.log.origin),
        pytest.raises(Conflict, match="pushes there"),
    ):
        collect(alice)
    assert not (share / "gc").exists()
    remote.begin_gc(alice.store.log.origin)
    bob.deposit("bobs", range(33))
    with pytest.raises(Conflict, match="removes there"):
        bob.push()
    assert not (share / "refs" / "bobs").exists()
    assert not list((share / "pushing").iterdir())
    collect(alice)  # the one that was killed is gone on with
    assert not bob.push().findings


@pytest.mark.usefixtures("quick_watch")
def test_a_killed_push_holds_up_nobody_for_ever(alice: Person, bob: Person, share: Path) -> None:
    alice.deposit("demo")
    alice.push()
    bob.clone(share, alice)
    alice.deposit("demo", range(40))
    killed_at(alice.push, 25)
    assert list((share / "pushing").iterdir())
    bob.pull()
    (done,) = collect(bob)
    assert isinstance(done, RemoteCollected)
    assert not list((share / "pushing").iterdir())
    assert any("killed" in text for text in bob.report.told)
    assert not alice.push().findings
    assert not bob.pull().findings and bob.store.ref("demo") == alice.store.ref("demo")


@pytest.mark.usefixtures("quick_watch")
def test_a_killed_gc_whose_store_is_gone_is_ended_by_another(
    alice: Person, bob: Person, share: Path
) -> None:
    alice.deposit("demo")
    alice.push()
    bob.clone(share, alice)
    open_remote(str(share), cwd=share).begin_gc("kvg-gone")
    bob.deposit("bobs", range(33))
    with pytest.raises(Conflict, match="kvg-gone removes there") as told:
        bob.push()
    assert "kvg remote gc here ends one that was killed" in (told.value.hint or "")
    (done,) = collect(bob)
    assert isinstance(done, RemoteCollected)
    assert any("log kvg-gone removes no more: it was killed" in text for text in bob.report.told)
    assert not (share / "gc").exists()
    assert not bob.push().findings


@pytest.mark.usefixtures("quick_watch")
def test_a_gc_that_lives_is_not_taken_for_dead(alice: Person, share: Path) -> None:
    alice.deposit("demo")
    alice.push()
    remote = open_remote(str(share), cwd=share)
    assert isinstance(remote, FileRemote)
    with (
        alive.removing(remote, "kvg-other"),
        pytest.raises(Conflict, match="kvg-other removes there"),
    ):
        collect(alice)
    assert not (share / "gc").exists()


def test_a_gc_that_was_taken_for_dead_removes_nothing_more(
    alice: Person, share: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = alice.deposit("demo")
    alice.push()
    mine, others = (open_remote(str(share), cwd=share) for _ in range(2))
    assert isinstance(mine, FileRemote) and isinstance(others, FileRemote)
    with alive.removing(mine, "kvg-other") as removal:
        others.end_killed_gc(others.collector() or b"")
        others.begin_gc("kvg-third")
        monkeypatch.setattr(alive, "BEAT_S", -1.0)
        with pytest.raises(Conflict, match="taken for dead"):
            removal.remove(digest)
    assert (share / object_name(digest)).exists()
    assert (share / "gc").read_bytes().startswith(b"kvg-third ")
    others.end_gc()
    assert not (share / "gc").exists()


def test_a_killed_push_is_ended_by_the_next(alice: Person, share: Path) -> None:
    alice.deposit("demo")
    alice.push()
    alice.deposit("demo", range(40))
    killed_at(alice.push, 25)
    assert list((share / "pushing").iterdir())
    alice.push()
    assert not list((share / "pushing").iterdir())


def test_a_push_that_was_taken_for_dead_moves_no_pointer(
    alice: Person, share: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice.deposit("demo")
    alice.push()
    before = (share / "refs" / "demo").read_bytes()
    alice.deposit("demo", range(40))
    real = Push._send

    def sleeping(work: Push, *given: object, **more: object) -> object:
        yield from real(work, *given, **more)
        remote = open_remote(str(share), cwd=share)
        for origin, mark in remote.pushes(besides="").items():
            remote.end_push(origin, mark)

    monkeypatch.setattr(Push, "_send", sleeping)
    with pytest.raises(Conflict, match="taken for dead"):
        alice.push()
    assert (share / "refs" / "demo").read_bytes() == before
    monkeypatch.undo()
    assert alice.push().states == {"demo": "moved"}


def test_over_every_kind(place: Place, tmp_path: Path) -> None:  # noqa: F811
    alice = Person.make(tmp_path / "alice", place.access).init().add(place.to)
    alice.deposit("demo", range(5, 30))
    alice.push()
    kept = alice.deposit("demo", range(60, 90))
    alice.push()
    if place.to.startswith("oci"):
        with pytest.raises(RemoteFailed):
            collect(alice)
        return
    (done,) = collect(alice)
    assert done.objects > 0 and done.bytes > 0
    is_told = any("AbortIncompleteMultipartUpload" in text for text in alice.report.told)
    assert is_told == place.to.startswith("s3:")
    bob = Person.make(tmp_path / "bob", place.access)
    bob.clone(place.source, alice)
    assert bob.store.ref("demo") == kept


def test_what_a_killed_push_had_half_written_goes(alice: Person, share: Path) -> None:
    import fcntl

    alice.deposit("demo")
    alice.push()
    staging = share / "tmp"
    left = staging / "partial.1.2.abcd"
    left.write_bytes(b"x" * 1000)
    other = staging / "somebody's"
    other.write_bytes(b"y")
    (planned,) = collect(alice, dry_run=True)
    assert (planned.partial, planned.bytes) == (1, 1000) and left.exists()
    with open(left, "rb") as writing:
        fcntl.flock(writing, fcntl.LOCK_EX)  # as its writer does, as long as it is at work
        (done,) = collect(alice)
        assert done.partial == 0 and left.exists()
    (done,) = collect(alice)
    assert (done.partial, done.bytes) == (1, 1000)
    assert not left.exists() and other.exists()


def test_half_written_files_go_over_ssh_too(
    ssh_server: Ssh,  # noqa: F811
    share: Path,
    tmp_path: Path,
) -> None:
    alice = Person.make(tmp_path / "alice", ssh_server.access).init().add(ssh_server.url(share))
    alice.deposit("demo")
    alice.push()
    left = share / "tmp" / "partial.1.2.abcd"
    left.write_bytes(b"x" * 1000)
    (done,) = collect(alice)
    assert (done.partial, done.bytes) == (1, 1000) and not left.exists()


def test_a_store_in_which_somebody_works_is_not_cleaned(alice: Person, bob: Person) -> None:
    """Its own refs are in its own log, which is no part of a remote; an empty one is a remote."""
    Store.init(bob.folder / "work", keyring=bob.keyring)
    remote_add(alice.store, alice.settings, "bob", str(bob.folder / "work"))
    alice.deposit("demo")
    tuple(push(alice.store, alice.settings, "bob", ()))
    assert [item.type for item in remote_gc(alice.store, alice.settings, "bob")] == [
        "remote-collected"
    ]
    bob.init().deposit("bobs", range(60, 90))
    with pytest.raises(UsageError, match="a store with a log of its own"):
        tuple(remote_gc(alice.store, alice.settings, "bob"))
    records = tuple(forget(alice.store, alice.settings, ["demo"], remote="bob"))
    assert [item.code for item in records if isinstance(item, Finding)] == [4]
    (done,) = (item for item in records if item.type == "remote-forgotten")
    assert (done.refs, done.objects) == (("demo",), 0)
    assert not [item for item in fsck(bob.store, bob.settings) if item.type == "finding"]
