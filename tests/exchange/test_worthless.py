"""Pointers that are worth nothing: their owner replaces them, who pushes takes them off."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from kvg.errors import Conflict
from kvg.flow.records import Finding
from kvg.flow.remote_gc import remote_gc
from kvg.remote import oci, open_remote
from kvg.remote.layout import MalformedPointer
from kvg.remote.registry import RegistryRemote
from tests.exchange.conftest import Person
from tests.exchange.test_every_kind import oci_server  # noqa: F401
from tests.remote.programs import Oci


@pytest.fixture
def pushed(alice: Person) -> Person:
    alice.deposit("demo")
    alice.deposit("three", range(40))
    alice.push()
    return alice


def spoil(share: Path, how: str) -> None:
    path = share / "refs" / "three"
    other = (share / "refs" / "demo").read_bytes()
    path.write_bytes({"another ref's": other, "malformed": b"a note\n", "empty": b""}[how])


KINDS = ("another ref's", "malformed", "empty")


@pytest.mark.parametrize("how", KINDS)
def test_its_owner_pushes_it_anew(pushed: Person, bob: Person, share: Path, how: str) -> None:
    spoil(share, how)
    assert pushed.push("three", dry_run=True).states == {"three": "new"}
    outcome = pushed.push()
    assert not outcome.findings
    assert outcome.states == {"demo": "unchanged", "three": "new"}
    assert any("it is replaced" in text for text in pushed.report.told)
    assert bob.clone(share, pushed).states == {"demo": "new", "three": "new"}
    assert bob.store.ref("three") == pushed.store.ref("three")


@pytest.mark.parametrize("how", KINDS)
def test_it_is_taken_off(pushed: Person, share: Path, how: str) -> None:
    spoil(share, how)
    (share / "refs" / "note").write_text("somebody's\n")
    refused = list(remote_gc(pushed.store, pushed.settings, None))
    assert {item.object for item in refused if isinstance(item, Finding)} == {"note", "three"}
    for item in refused:
        assert isinstance(item, Finding)
        assert f"kvg push origin --delete {item.object}" in (item.hint or "")
    gone = pushed.push("three", "note", delete=True)
    assert gone.states == {"three": "deleted", "note": "deleted"} and not gone.findings
    assert sorted(path.name for path in (share / "refs").iterdir()) == ["demo"]
    assert not any(isinstance(r, Finding) for r in remote_gc(pushed.store, pushed.settings, None))


def test_readers_are_told_what_helps(pushed: Person, bob: Person, share: Path) -> None:
    bob.clone(share, pushed)
    spoil(share, "another ref's")
    (told,) = bob.pull().findings
    assert told.code == 6 and "--delete three" in (told.hint or "")
    bobs = bob.deposit("three", range(44))
    assert bob.push("three").states == {"three": "new"}  # worth nothing, whoever's log it names
    assert pushed.pull("three", trust=[bob.key.public.keyid]).states == {"three": "moved"}
    assert pushed.store.ref("three") == bobs


def test_a_pointer_that_may_be_proved_is_not_replaced(pushed: Person, bob: Person) -> None:
    bob.init().add(pushed.folder.parent / "share")
    bob.deposit("three", range(44))
    assert bob.push("three").codes == [6]
    assert bob.push("three", delete=True).codes == [6]


@pytest.mark.parametrize("position", ["x", "9" * 16])
def test_a_tag_that_points_nowhere(
    position: str,
    oci_server: Oci,  # noqa: F811
    tmp_path: Path,
) -> None:
    """In a registry, where a pointer is what an image manifest says of itself."""
    url = oci_server.url(f"team/kv-{uuid.uuid4().hex}")
    alice = Person.make(tmp_path / "alice", oci_server.access).init().add(url)
    digest = alice.deposit("demo")
    alice.push()
    remote = RegistryRemote(url, oci_server.access)

    def spoil_tag() -> None:
        tagged = remote.tagged("demo")
        assert tagged is not None
        notes = dict(tagged.image.annotations) | {oci.POSITION: position}
        remote.put_image("demo", replace(tagged.image, annotations=tuple(sorted(notes.items()))))

    spoil_tag()
    assert alice.push().states == {"demo": "new"}
    assert any("it is replaced" in text for text in alice.report.told)
    bob = Person.make(tmp_path / "bob", oci_server.access)
    assert bob.clone(url, alice).states == {"demo": "new"} and bob.store.ref("demo") == digest
    spoil_tag()
    (told,) = bob.pull().findings
    assert "--delete demo" in (told.hint or "")
    assert alice.push("demo", delete=True).states == {"demo": "deleted"}
    assert RegistryRemote(url, oci_server.access).pointer("demo") is None


def test_what_was_changed_meanwhile_stays(pushed: Person, share: Path, tmp_path: Path) -> None:
    spoil(share, "malformed")
    remote = open_remote(str(share), cwd=tmp_path)
    found = remote.pointers(["three"])["three"]
    assert isinstance(found, MalformedPointer)
    spoil(share, "empty")
    with pytest.raises(Conflict):
        remote.move("three", None, expect=found)
    assert (share / "refs" / "three").exists()
