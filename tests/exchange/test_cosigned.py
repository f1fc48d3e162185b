"""A witness's word travels with the log that it is about."""

from __future__ import annotations

from pathlib import Path

from kvg.flow.bundle import bundle_apply, bundle_create
from kvg.flow.checkpoint import add_cosignatures
from kvg.signing.cosignature import Witness, cosign, cosigned_at, encode_witness
from kvg.signing.note import encode_signature, parse_note
from kvg.verify.findings import Finding
from kvg.verify.fsck import fsck
from tests.artifacts import key_of
from tests.exchange.conftest import Person
from tests.exchange.test_every_kind import Place, oci_server, place, s3_server, ssh_server  # noqa: F401

EVE = key_of("witness")
WITNESS = Witness("witness.example", EVE.public)


def cosigned(person: Person) -> None:
    """A witness cosigns the checkpoint of the person's log, as it stands."""
    text = parse_note(person.store.log.note, what="it").text
    line = encode_signature(cosign(text, WITNESS.name, EVE, time=1_764_432_000))
    add_cosignatures(person.store, person.settings, line, [encode_witness(WITNESS)])


def seen(person: Person, origin: str) -> int | None:
    """The size of that log at which the person saw it witnessed."""
    log = person.store.peers.log(origin)
    assert log is not None
    if not log.cosigned or cosigned_at(parse_note(log.cosigned, what="it"), WITNESS) is None:
        return None
    return int(parse_note(log.cosigned, what="it").text.splitlines()[1])


def test_over_every_kind(place: Place, tmp_path: Path) -> None:  # noqa: F811
    alice = Person.make(tmp_path / "a", place.access).init().add(place.to)
    alice.deposit("demo")
    alice.push()
    bob = Person.make(tmp_path / "b", place.access)
    bob.clone(place.source, alice)
    origin = alice.store.log.origin
    assert seen(bob, origin) is None
    cosigned(alice)
    size = alice.store.log.size
    assert not alice.push().findings  # nothing else is new
    assert not bob.pull().findings and seen(bob, origin) == size
    alice.deposit("demo", range(40))  # the log grows past what was witnessed
    alice.push()
    assert not bob.pull().findings and seen(bob, origin) == size


def test_what_is_no_word_about_this_log_is_not_kept(
    alice: Person, bob: Person, share: Path
) -> None:
    alice.deposit("demo")
    cosigned(alice)
    alice.push()
    origin = alice.store.log.origin
    other = Person.make(share.parent / "other").init()
    other.deposit("demo")
    cosigned(other)
    file = share / "logs" / origin / "cosigned"
    good = file.read_bytes()
    file.chmod(0o644)
    for bad in (other.store.log.cosigned, good[:-30], b"", b"\xff" * 100):
        file.write_bytes(bad)
        person = Person.make(share.parent / f"p{len(bad)}")
        assert not person.clone(share, alice).findings
        assert seen(person, origin) is None
    file.write_bytes(good)
    bob.clone(share, alice)
    assert seen(bob, origin) is not None


def test_a_bundle_has_it(alice: Person, bob: Person, tmp_path: Path) -> None:
    alice.deposit("demo")
    cosigned(alice)
    bundle_create(alice.store, alice.settings, tmp_path / "it.kvgb")
    bob.init()
    key = alice.key.public.keyid
    tuple(bundle_apply(bob.store, bob.settings, tmp_path / "it.kvgb", (), trust=[key]))
    assert seen(bob, alice.store.log.origin) is not None


def test_a_copy_of_before_gets_its_checksum_by_a_fetch(
    alice: Person, bob: Person, share: Path
) -> None:
    alice.deposit("demo")
    cosigned(alice)
    alice.push()
    bob.clone(share, alice)
    origin = alice.store.log.origin
    kept = bob.store.root / "peers" / origin / "cosigned"
    kept.chmod(0o644)
    kept.write_bytes((share / "logs" / origin / "cosigned").read_bytes())
    (found,) = [item for item in fsck(bob.store) if isinstance(item, Finding)]
    assert "no checksum" in found.message and found.hint == "kvg fetch REMOTE"
    (share / "logs" / origin / "cosigned").unlink()
    assert not bob.pull().findings
    assert not [item for item in fsck(bob.store) if isinstance(item, Finding)]
    assert seen(bob, origin) is not None


def test_a_lost_one_is_missed_and_fetched(alice: Person, bob: Person, share: Path) -> None:
    alice.deposit("demo")
    cosigned(alice)
    alice.push()
    bob.clone(share, alice)
    origin = alice.store.log.origin
    kept = bob.store.root / "peers" / origin / "cosigned"
    kept.unlink()
    (found,) = [item for item in fsck(bob.store, repair=True) if isinstance(item, Finding)]
    assert (found.code, found.object) == (5, f"peers/{origin}/cosigned")
    assert "missing" in found.message and found.hint == "kvg fetch REMOTE"
    bob.pull()
    assert not [item for item in fsck(bob.store) if isinstance(item, Finding)]
    kept.chmod(0o644)
    kept.write_bytes(kept.read_bytes().replace(b"witness.", b"vitness."))
    (found,) = [item for item in fsck(bob.store, repair=True) if isinstance(item, Finding)]
    assert found.object == f"peers/{origin}/cosigned" and not kept.exists()
    assert (kept.parent / "checkpoint").exists()  # and no more than that is moved away
    bob.pull()
    assert not [item for item in fsck(bob.store) if isinstance(item, Finding)]


def test_the_newest_word_is_kept_whatever_the_remote_shows(
    alice: Person, bob: Person, share: Path
) -> None:
    alice.deposit("demo")
    cosigned(alice)
    alice.push()
    origin = alice.store.log.origin
    there = share / "logs" / origin / "cosigned"
    older = there.read_bytes()
    alice.deposit("more", range(40))
    cosigned(alice)
    alice.push()
    bob.clone(share, alice)
    size = seen(bob, origin)
    there.chmod(0o644)
    there.write_bytes(older)
    assert not bob.pull().findings and seen(bob, origin) == size
    (bob.store.root / "peers" / origin / "cosigned").unlink()
    assert not bob.pull().findings and seen(bob, origin) == size
    assert not [item for item in fsck(bob.store) if isinstance(item, Finding)]
