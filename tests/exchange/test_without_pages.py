"""Stores that hold what is attested, and bring pages when they are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvg.digest import Digest
from kvg.errors import Corrupt, KvgError, RemoteFailed
from kvg.flow.exchange.supplying import absent
from kvg.flow.gc import gc
from kvg.flow.remote import remote_set
from kvg.flow.settings import open_store
from kvg.flow.verify import verify
from kvg.remote.layout import object_name
from kvg.store import Store
from kvg.verify import check_store, verify_artifact
from kvg.verify.fsck import FsckSummary, fsck
from tests.exchange.conftest import Person


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
    from dataclasses import replace

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
    path.unlink()
    with pytest.raises(RemoteFailed, match="no remote has them"):
        verified.read_page(verified.manifest.pages[0])


def test_pull_keeps_to_it_until_told_otherwise(alice: Person, bob: Person, digest: Digest) -> None:
    newer = alice.deposit("demo", range(60))
    alice.push()
    assert bob.pull().states == {"demo": "moved"}
    assert absent(bob.store, bob.store.manifest(newer))
    remote_set(bob.store, bob.settings, "origin", url=None, codec=None, pages=True)
    assert not bob.pull().findings
    assert absent(bob.store, bob.store.manifest(newer)) == ()


def test_pages_that_are_here_nowhere_do_not_travel(
    bob: Person, digest: Digest, tmp_path: Path
) -> None:
    bob.store.config.set_table("remote", "other", {"url": str(tmp_path / "other")})
    from kvg.flow.push import push
    from kvg.flow.records import Finding

    found = [r for r in push(bob.store, bob.settings, "other") if isinstance(r, Finding)]
    assert {finding.code for finding in found} == {5}
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
    assert told.value.code == 9
