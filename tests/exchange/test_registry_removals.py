"""What goes from a container registry takes nothing along that somebody else has or relies on."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvg.errors import KvgError, RemoteFailed
from kvg.flow.forget import forget
from kvg.flow.records import Finding
from kvg.remote import oci, turns
from kvg.remote.distribution import Registry
from kvg.remote.layout import HeldUp
from kvg.remote.registry import RegistryRemote
from kvg.verify import verify_artifact
from tests.exchange.conftest import Outcome, Person
from tests.remote.programs import Oci, registry


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oci]:
    with registry(tmp_path_factory.mktemp("registry")) as server:
        yield server


def tags(server: Oci, name: str) -> set[str]:
    found = Registry(server.url(name), server.access).tags() or ()
    return {tag for tag in found if not tag.startswith(("_kvg.", "sha256-"))}


@pytest.mark.parametrize("untags", [False, True])
def test_a_ref_that_is_taken_off_leaves_other_tags_of_its_artifact(
    server: Oci, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, untags: bool
) -> None:
    """As ``skopeo copy`` makes them. Some registries take a single tag off, many can't."""
    name = f"team/tags-{untags}".lower()
    alice = Person.make(tmp_path / "alice", server.access).init().add(server.url(name))
    bob = Person.make(tmp_path / "bob", server.access)
    alice.deposit("demo")
    alice.deposit("other", range(40))
    alice.push()
    place = Registry(server.url(name), server.access)
    image = place.manifest("demo")
    assert image is not None
    place.put_manifest("release", image.data, oci.IMAGE)
    if untags:
        kept = server.folder / "data/docker/registry/v2/repositories" / name / "_manifests/tags"

        def untag(self: Registry, tag: str) -> bool:
            shutil.rmtree(kept / tag)
            return True

        monkeypatch.setattr(Registry, "delete_tag", untag)
    assert alice.push("demo", delete=True).states == {"demo": "deleted"}
    assert tags(server, name) == {"other", "release"}
    there = place.manifest("release")
    assert there is not None and there.data == image.data
    assert bob.clone(server.url(name), alice).states["other"] == "new"
    assert alice.push("demo").states == {"demo": "new"}
    assert bob.pull("demo").states == {"demo": "new"}


def test_where_nothing_is_deleted_a_ref_stays_as_it_is(tmp_path: Path) -> None:
    with registry(tmp_path / "registry", deletes=False) as server:
        alice = Person.make(tmp_path / "alice", server.access).init().add(server.url("team/kv"))
        alice.deposit("demo")
        alice.push()
        with pytest.raises(RemoteFailed, match="deletes nothing"):
            alice.push("demo", delete=True)
        assert tags(server, "team/kv") == {"demo"}
        bob = Person.make(tmp_path / "bob", server.access)
        assert bob.clone(server.url("team/kv"), alice).states == {"demo": "new"}


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_push_beside_a_forget_relies_on_nothing_that_went(
    server: Oci, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    """A blob that was there when it asked was one of what another forgot meanwhile."""
    monkeypatch.setattr(turns, "LOOK_S", 0.01)
    monkeypatch.setattr(turns, "WATCH_S", 2.0)
    url = server.url(f"team/race-{is_killed}".lower())
    alice = Person.make(tmp_path / "alice", server.access).init().add(url)
    bob = Person.make(tmp_path / "bob", server.access)
    alice.deposit("short", range(5, 21))
    alice.push()
    bob.clone(url, alice)
    long = bob.deposit("long", range(5, 40))  # its first page is that of the short one
    pushes: list[Outcome | BaseException] = []

    def push() -> None:
        try:
            pushes.append(bob.push("long"))
        except KvgError as error:
            pushes.append(error)

    pushing = threading.Thread(target=push)
    real = RegistryRemote.users_of_blobs

    def users_of_blobs(self: RegistryRemote, **more: frozenset[str]) -> object:
        found = real(self, **more)
        pushing.start()
        wanted = turns._tag_of(bob.store.log.origin)  # it waits for its turn: all else is up
        while wanted not in (self._registry.tags() or ()):
            time.sleep(0.01)
        return found

    def delete_tag(self: RegistryRemote, tag: str) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(RegistryRemote, "users_of_blobs", users_of_blobs)
        if is_killed:
            patch.setattr(RegistryRemote, "delete_tag", delete_tag)
            patch.setattr(turns.Removals, "note", first_note_alone())
            patch.setattr(RegistryRemote, "withdraw", lambda self, origin: None)
            with pytest.raises(Killed):
                list(forget(alice.store, alice.settings, ["short"], remote="origin"))
        else:
            done = list(forget(alice.store, alice.settings, ["short"], remote="origin"))
            assert not [item for item in done if isinstance(item, Finding)]
    pushing.join()
    (first,) = pushes
    assert isinstance(first, HeldUp) and first.code == 4
    assert bob.push("long").states == {"long": "new"}
    carol = Person.make(tmp_path / "carol", server.access)
    assert carol.clone(url, bob).states["long"] == "new"
    assert verify_artifact(carol.store, long)


class Killed(BaseException):
    pass


def first_note_alone() -> object:
    real, noted = turns.Removals.note, []

    def note(self: turns.Removals, *, is_over: bool) -> None:
        if not noted:
            real(self, is_over=is_over)
        noted.append(is_over)

    return note
