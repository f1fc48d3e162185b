"""``kvg forget --remote``: what only the artifact needs goes there, too, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial, partialmethod
from pathlib import Path

import pytest

from kvg.digest import Digest
from kvg.errors import KvgError, NotFound
from kvg.flow.forget import forget
from kvg.flow.records import Finding, Record
from kvg.flow.records.exchange import ForgottenThere
from kvg.flow.records.upkeep import Remaining
from kvg.log.entry import ForgetEntry, parse_entry
from kvg.remote import open_remote
from kvg.remote.layout import object_name
from kvg.remote.registry import RegistryRemote
from tests.exchange.conftest import Person
from tests.exchange.test_crash import KILL, MATRIX, killed_at, steps_of
from tests.exchange.test_every_kind import Place, oci_server, place, s3_server, ssh_server  # noqa: F401
from tests.exchange.test_remote_gc import there
from tests.remote.programs import registry
from tests.remote.servers import serving
from tests.store.faults import struck


def forgotten(
    person: Person, *targets: str, dry_run: bool = False, remote: str | None = "origin"
) -> tuple[Record, ...]:
    settings = replace(person.settings, dry_run=dry_run)
    return tuple(forget(person.store, settings, targets, remote=remote))


def faults(records: tuple[Record, ...]) -> list[Finding]:
    return [item for item in records if isinstance(item, Finding)]


def last(records: tuple[Record, ...]) -> ForgottenThere:
    found = records[-1]
    assert isinstance(found, ForgottenThere)
    return found


def tombstones(person: Person, origin: str) -> list[Digest]:
    """What the copy of a log that ``person`` took from the remote says is forgotten."""
    log = person.store.peers.log(origin)
    entries = (parse_entry(raw, what="entry") for raw in log.read())
    return [entry.digest for entry in entries if isinstance(entry, ForgetEntry)]


def objects_of(person: Person, digest: Digest) -> set[str]:
    manifest = person.store.manifest(digest)
    return {digest, manifest.tokens.digest, *(page.digest for page in manifest.pages)}


def test_it_goes_and_what_is_shared_stays(alice: Person, bob: Person, share: Path) -> None:
    gone = alice.deposit("demo", range(5, 30))
    kept = alice.deposit("kept", [*range(5, 21), *range(60, 68)])
    shared = objects_of(alice, gone) & objects_of(alice, kept)
    only = objects_of(alice, gone) - shared
    assert shared and only
    alice.push()
    before = there(share)
    planned = last(forgotten(alice, "demo", dry_run=True))
    assert there(share) == before and (share / "refs" / "demo").exists()
    records = forgotten(alice, "demo")
    done = last(records)
    assert not faults(records) and done.refs == ("demo",)
    assert (done.objects, done.bytes) == (planned.objects, planned.bytes)
    stays = {item.object: item.users for item in records if isinstance(item, Remaining)}
    assert {d: users for d, users in stays.items() if d in shared and "origin/kept" in users}
    assert done.remaining >= len(shared)
    assert not (share / "refs" / "demo").exists()
    for digest in only:
        assert not (share / object_name(digest)).exists()
    assert len(before) - len(there(share)) == done.objects
    assert not (share / "gc").exists()
    cloned = bob.clone(share, alice)
    assert not cloned.findings and bob.store.own_refs() == {"kept": kept}
    assert tombstones(bob, alice.store.log.origin) == [gone]
    assert not alice.push().findings


def test_an_earlier_value_goes_too(alice: Person, bob: Person, share: Path) -> None:
    old = alice.deposit("demo", range(5, 30))
    alice.push()
    new = alice.deposit("demo", range(60, 90))
    alice.push()
    done = last(forgotten(alice, old))
    assert done.refs == () and done.objects > 0
    assert not (share / object_name(old)).exists()
    bob.clone(share, alice)
    assert bob.store.ref("demo") == new


def test_what_another_publisher_holds_stays_and_is_told(
    alice: Person, bob: Person, share: Path
) -> None:
    digest = alice.deposit("demo")
    alice.push()
    bob.clone(share, alice)
    bob.store.set_ref("mine", digest)
    bob.push()
    alice.fetch()  # takes up nothing: bob is not trusted yet
    refused = forgotten(alice, "demo")
    assert {item.code for item in faults(refused)} == {6}
    assert (share / object_name(digest)).exists()
    alice.pull(trust=[bob.key.public.keyid])
    held = forgotten(alice, digest)
    assert [item.code for item in faults(held)] == [4]
    assert "origin/mine" in faults(held)[0].object
    assert (share / object_name(digest)).exists() and last(held).objects == 0
    assert bob.push().states["mine"] == "unchanged"


def test_a_remote_that_is_only_read_is_told(alice: Person, bob: Person, share: Path) -> None:
    digest = alice.deposit("demo")
    alice.push()
    with serving(share) as server:
        bob.clone(server.url, alice)
        records = forgotten(bob, "demo")
    assert [item.code for item in faults(records)] == [9] and "read" in faults(records)[0].message
    assert (share / object_name(digest)).exists()
    with pytest.raises(NotFound):
        bob.store.resolve("demo")


def test_one_that_is_away_is_gone_on_with(alice: Person, share: Path) -> None:
    digest = alice.deposit("demo")
    alice.push()
    away = share.with_name("away")
    share.rename(away)
    assert faults(forgotten(alice, "demo"))
    away.rename(share)
    again = forgotten(alice, "demo")
    assert not faults(again) and last(again).refs == ("demo",)
    assert not (share / object_name(digest)).exists()
    with pytest.raises(NotFound):
        forgotten(alice, "demo", remote=None)


def test_no_such_remote_forgets_nothing(alice: Person) -> None:
    digest = alice.deposit("demo")
    with pytest.raises(KvgError, match="nowhere"):
        forgotten(alice, "demo", remote="nowhere")
    assert alice.store.ref("demo") == digest


def test_killed_at_any_step_the_same_command_ends_it(
    alice: Person, share: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Each step of the remote's part; those of the store's own are its own tests'."""
    ids = [range(5 + n, 30 + n) for n in range(40)]
    alice.deposit("kept", range(60, 90))
    alice.deposit("first", ids[0])
    alice.push()
    first = steps_of(lambda: forgotten(alice, "first", remote=None))
    forgotten(alice, "first")
    alice.deposit("second", ids[1])
    alice.push()
    both = steps_of(lambda: forgotten(alice, "second"))
    every = 1 if os.environ.get("KVG_CRASH_ALL") else 5
    struck_at = range(first - 4, both, every)
    for n, at in enumerate(struck_at, 2):
        gone = alice.deposit("demo", ids[n % 40])
        alice.push()
        killed_at(partial(forgotten, alice, gone), at)
        again = forgotten(alice, gone)
        assert not faults(again), at
        assert not (share / "refs" / "demo").exists()
        assert not (share / object_name(gone)).exists()
        assert not (share / "gc").exists()
    third = Person.make(tmp_path / "third")
    assert not third.clone(share, alice).findings
    assert list(third.store.own_refs()) == ["kept"]
    assert third.store.objects.has(third.store.own_refs()["kept"])
    left = there(share)
    from tests.exchange.test_remote_gc import collect

    collect(alice)
    assert there(share) == left  # not one object of what was forgotten was left behind
    n_points, n_steps = len(struck_at), both - first + 4
    struck(record_property, MATRIX, "forget there, killed", n_steps, n_points, {KILL: n_points})


def test_over_every_kind(place: Place, tmp_path: Path) -> None:  # noqa: F811
    alice = Person.make(tmp_path / "alice", place.access).init().add(place.to)
    gone = alice.deposit("demo", range(5, 30))
    kept = alice.deposit("kept", [*range(5, 21), *range(60, 68)])
    alice.push()
    records = forgotten(alice, "demo")
    done = last(records)
    assert not faults(records) and done.refs == ("demo",) and done.objects > 0
    assert done.remaining > 0
    bob = Person.make(tmp_path / "bob", place.access)
    assert not bob.clone(place.source, alice).findings
    assert bob.store.own_refs() == {"kept": kept}
    assert tombstones(bob, alice.store.log.origin) == [gone]
    remote = open_remote(place.to, cwd=tmp_path, access=place.access)
    assert gone in remote.missing([gone])
    if isinstance(remote, RegistryRemote):
        assert not remote.has_blob(gone)
    remote.close()
    again = last(forgotten(alice, "demo"))
    assert (again.refs, again.objects) == ((), 0)


def test_a_registry_that_deletes_nothing_is_told(tmp_path: Path) -> None:
    with registry(tmp_path / "registry", deletes=False) as oci:
        alice = Person.make(tmp_path / "alice", oci.access).init().add(oci.url("team/kv"))
        gone = alice.deposit("demo")
        alice.push()
        found = faults(forgotten(alice, "demo"))
        assert [item.code for item in found] == [9] and "deletes nothing" in found[0].message
        bob = Person.make(tmp_path / "bob", oci.access)
        assert bob.clone(oci.url("team/kv"), alice).codes == [6]  # its log says that it is gone
        assert tombstones(bob, alice.store.log.origin) == [gone]


def test_a_registry_is_gone_on_with_from_its_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut after each request that deletes, in turn."""
    from kvg.errors import RemoteFailed
    from kvg.remote.distribution import Registry

    with registry(tmp_path / "registry") as oci:
        alice = Person.make(tmp_path / "alice", oci.access).init().add(oci.url("team/kv"))
        alice.deposit("kept", range(60, 90))
        remote = RegistryRemote(oci.url("team/kv"), oci.access)
        for after in range(8):
            gone = alice.deposit("demo", range(after, 30 + after))
            alice.push()
            left = after

            def spend(_registry: Registry, digest: Digest, *, work: object) -> object:
                nonlocal left
                if left == 0:
                    raise RemoteFailed("cut")
                left -= 1
                return work(_registry, digest)

            with monkeypatch.context() as patched:
                for name in ("delete_manifest", "delete_blob"):
                    patched.setattr(
                        Registry, name, partialmethod(spend, work=getattr(Registry, name))
                    )
                assert faults(forgotten(alice, gone))
            assert not faults(forgotten(alice, gone)), after
            assert not remote.has_blob(gone)
            assert not [tag for tag in remote._registry.tags() or () if "forget" in tag]
        bob = Person.make(tmp_path / "bob", oci.access)
        assert not bob.clone(oci.url("team/kv"), alice).findings
        assert list(bob.store.own_refs()) == ["kept"]
