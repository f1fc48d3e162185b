"""Stores that hold what is attested, and bring pages when they are read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kvg.digest import Digest
from kvg.errors import Conflict, Corrupt, KvgError, NotFound
from kvg.flow.bundle import bundle_create, bundle_verify
from kvg.flow.cat import cat
from kvg.flow.exchange.supplying import absent
from kvg.flow.gc import gc
from kvg.flow.push import push
from kvg.flow.remote import remote_remove, remote_set
from kvg.flow.settings import open_store
from kvg.flow.verify import verify
from kvg.remote.layout import object_name
from kvg.store import Store
from kvg.verify import check_store, verify_artifact
from kvg.verify.fsck import FsckSummary, fsck
from tests.exchange.conftest import Outcome, Person


@pytest.fixture
def digest(alice: Person, bob: Person, share: Path) -> Digest:
    """An artifact of Alice's that Bob has cloned without its pages."""
    digest = alice.deposit("demo")
    alice.push()
    cloned = bob.clone(share, alice, pages=False)
    assert not cloned.findings and cloned.states == {"demo": "new"}
    assert cloned.transfer.objects_sent == 10 - len(alice.store.manifest(digest).pages)
    return digest


def opened(person: Person) -> Store:
    """The store as a command opens it."""
    return open_store(replace(person.settings, cwd=person.folder / "work"))


def test_what_is_attested_is_here_and_says_what_is_not(bob: Person, digest: Digest) -> None:
    store = bob.store
    n_pages = len(store.manifest(digest).pages)
    assert store.ref("demo") == store.ref("origin/demo") == digest
    assert len(absent(store, store.manifest(digest))) == n_pages
    *findings, summary = verify(store, bob.settings)
    assert not findings
    assert (summary.signatures_ok, summary.absent) == (True, n_pages)
    *faults, checked = fsck(store)
    assert not faults and isinstance(checked, FsckSummary)
    gc(store, bob.settings)
    assert verify_artifact(store, digest).digest == digest


def test_pages_come_when_they_are_read(alice: Person, bob: Person, digest: Digest) -> None:
    verified = verify_artifact(opened(bob), digest)
    for page in verified.manifest.pages:
        given = verified.read_page(page)
        assert bytes(given) == bytes(alice.store.objects.read(page.digest, what="page"))
    assert absent(bob.store, verified.manifest) == ()
    *findings, summary = check_store(bob.store)
    assert not findings and summary.absent == 0


def test_a_page_that_lies_is_refused(bob: Person, digest: Digest, share: Path) -> None:
    page = bob.store.manifest(digest).pages[0].digest
    path = share / object_name(page)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.chmod(0o644)
    path.write_bytes(bytes(data))
    verified = verify_artifact(opened(bob), digest)
    with pytest.raises(Corrupt):
        verified.read_page(verified.manifest.pages[0])
    assert not bob.store.objects.has(page)
    with pytest.raises(Corrupt, match=" on origin: 1 object not had: ") as told:
        verified.read_page(verified.manifest.pages[0])
    assert "kvg push origin --verify" in (told.value.hint or "")
    path.unlink()
    with pytest.raises(Corrupt, match="no remote has them"):
        verified.read_page(verified.manifest.pages[0])


def test_pages_that_are_kept_there_alone_are_not_given_up(bob: Person, digest: Digest) -> None:
    with pytest.raises(Conflict, match="pages are not here") as told:
        remote_remove(bob.store, bob.settings, "origin")
    assert "--pages" in (told.value.hint or "") and "--yes" in (told.value.hint or "")
    assert bob.store.ref("origin/demo") == digest
    remote_remove(bob.store, replace(bob.settings, assume_yes=True), "origin")
    assert bob.store.ref("origin/demo") is None


def test_pull_keeps_to_it_until_told_otherwise(alice: Person, bob: Person, digest: Digest) -> None:
    newer = alice.deposit("demo", range(60))
    alice.push()
    assert bob.pull().states == {"demo": "moved"}
    assert absent(bob.store, bob.store.manifest(newer))
    remote_set(bob.store, bob.settings, "origin", url=None, codec=None, pages=True)
    assert not bob.pull().findings
    assert absent(bob.store, bob.store.manifest(newer)) == ()


def test_pages_are_brought_to_travel_on(
    alice: Person, bob: Person, digest: Digest, tmp_path: Path
) -> None:
    bob.store.config.set_table("remote", "other", {"url": str(tmp_path / "other")})
    store = opened(bob)
    n_pages = len(store.manifest(digest).pages)
    told = Outcome(tuple(push(store, replace(bob.settings, dry_run=True), "other")))
    assert told.transfer.objects_sent == 10 and not told.findings
    assert len(absent(store, store.manifest(digest))) == n_pages
    sent = Outcome(tuple(push(store, bob.settings, "other")))
    assert sent.states == {"demo": "new"} and not sent.findings
    carol = Person.make(tmp_path / "carol")
    assert carol.clone(tmp_path / "other", alice, bob).states == {"demo": "new"}


def test_pages_that_are_there_are_not_brought_for_a_push(bob: Person, digest: Digest) -> None:
    longer = bob.deposit("longer", range(5, 60))
    page = bob.store.manifest(digest).pages[-1].digest
    assert page not in {item.digest for item in bob.store.manifest(longer).pages}
    assert bob.push().states["longer"] == "new"
    assert not bob.store.objects.has(page)


def test_pages_are_brought_for_a_bundle_and_thin_ones_do_without(
    bob: Person, digest: Digest
) -> None:
    store = opened(bob)
    bundle_create(store, bob.settings, Path("thin.tar"), pages=False)
    assert absent(store, store.manifest(digest))
    bundle_create(store, bob.settings, Path("whole.tar"))
    assert not absent(store, store.manifest(digest))
    *findings, summary = bundle_verify(store, bob.settings, Path("whole.tar"))
    assert not findings and summary.state == "verified"


def test_a_page_is_brought_to_be_shown(alice: Person, bob: Person, digest: Digest) -> None:
    store, page = opened(bob), bob.store.manifest(digest).pages[0].digest
    raw = bytes(alice.store.objects.read(page, what="page"))
    for name in (page[:20], page, page.removeprefix("sha256:")):
        assert cat(store, name) == (page, raw)
    with pytest.raises(NotFound):
        cat(store, "ab" * 32)


def test_pages_that_are_nowhere_do_not_travel(
    bob: Person, digest: Digest, tmp_path: Path, share: Path
) -> None:
    bob.store.config.set_table("remote", "other", {"url": str(tmp_path / "other")})
    share.rename(tmp_path / "away")
    sent = Outcome(tuple(push(opened(bob), bob.settings, "other")))
    assert sent.codes == [9] and not sent.states
    assert not (tmp_path / "other" / "refs").exists()


def test_as_a_command(
    alice: Person, bob: Person, share: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from kvg.cli.main import main

    alice.deposit("demo")
    alice.push()
    for name in ("DATA", "CONFIG", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(bob.folder / name))
    where = str(bob.folder / "peer")
    keyid = alice.key.public.keyid
    assert main(["clone", str(share), where, "--no-pages", "--trust", keyid]) == 0
    capsys.readouterr()
    assert main(["-C", where, "verify", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["absent"] > 0
    assert main(["-C", where, "verify"]) == 0
    assert "not here, not checked" in capsys.readouterr().out


def test_kvg_error_is_raised_without_a_remote(bob: Person, digest: Digest, share: Path) -> None:
    share.rename(share.parent / "away")
    verified = verify_artifact(opened(bob), digest)
    with pytest.raises(KvgError) as told:
        verified.read_page(verified.manifest.pages[0])
    assert told.value.code == 9 and "origin could not be asked" in told.value.message
