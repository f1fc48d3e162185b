"""The same exchange over every kind of remote, each a real server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from kvg.digest import sha256
from kvg.errors import Conflict, RemoteFailed
from kvg.flow.push import push
from kvg.remote import Access
from kvg.verify import check_store
from kvg.verify.check import VerifySummary
from tests.exchange.conftest import Person
from tests.remote.programs import S3, Oci, Ssh, moto, nginx, registry, sshd
from tests.remote.servers import serving

KINDS = ("directory", "ssh", "s3", "oci", "http", "nginx")


@dataclass(frozen=True)
class Place:
    """Where one pushes to and where one reads from; the same but for web servers."""

    to: str
    source: str
    access: Access


@pytest.fixture(scope="session")
def ssh_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ssh]:
    with sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(scope="session")
def oci_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oci]:
    with registry(tmp_path_factory.mktemp("registry"), login=True) as server:
        yield server


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, share: Path, tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        if request.param == "directory":
            yield Place(str(share), str(share), Access())
        elif request.param == "ssh":
            ssh: Ssh = request.getfixturevalue("ssh_server")
            yield Place(ssh.url(share), ssh.url(share), ssh.access)
        elif request.param == "s3":
            s3: S3 = request.getfixturevalue("s3_server")
            url = s3.bucket(f"kvg-{uuid.uuid4().hex}") + "/team/kv"
            yield Place(url, url, s3.access)
        elif request.param == "oci":
            oci: Oci = request.getfixturevalue("oci_server")
            url = oci.url(f"team/kv-{uuid.uuid4().hex}")
            yield Place(url, url, oci.access)
        elif request.param == "nginx":
            url = stack.enter_context(nginx(tmp_path / "nginx", share))
            yield Place(str(share), url, Access())
        else:
            yield Place(str(share), stack.enter_context(serving(share)).url, Access())


def whole(person: Person) -> VerifySummary:
    *findings, last = check_store(person.store)
    assert not findings and isinstance(last, VerifySummary)
    return last


def test_push_clone_and_pull(place: Place, tmp_path: Path) -> None:
    alice = Person.make(tmp_path / "alice", place.access).init().add(place.to)
    bob = Person.make(tmp_path / "bob", place.access)
    first, other = alice.deposit("docs/demo"), alice.deposit("other", range(40))
    pushed = alice.push()
    assert not pushed.findings and set(pushed.states.values()) == {"new"}
    again = alice.push().transfer
    assert (again.objects_sent, again.bytes) == (0, 0)
    cloned = bob.clone(place.source, alice)
    assert not cloned.findings
    assert bob.store.own_refs() == {"docs/demo": first, "other": other}
    for digest in (first, other):
        for page in alice.store.manifest(digest).pages:
            a, b = (p.store.objects.read(page.digest, what="page") for p in (alice, bob))
            assert bytes(a) == bytes(b)
    assert whole(bob).signatures_ok
    newer = alice.deposit("docs/demo", range(5, 60))
    moved = alice.push().transfer
    assert {ref.ref: ref.state for ref in moved.refs} == {
        "docs/demo": "moved",
        "other": "unchanged",
    }
    pulled = bob.pull()
    assert not pulled.findings and bob.store.ref("docs/demo") == newer
    assert pulled.transfer.objects_sent == moved.objects_sent
    assert bob.pull().transfer.objects_sent == 0


def test_two_publishers_and_one_ref(place: Place, tmp_path: Path) -> None:
    alice = Person.make(tmp_path / "alice", place.access).init().add(place.to)
    bob = Person.make(tmp_path / "bob", place.access)
    alice.deposit("demo")
    alice.push()
    bob.clone(place.source, alice)
    if place.to != place.source:
        with pytest.raises(RemoteFailed):
            bob.push()
        return
    mine = bob.deposit("demo", range(9, 50))
    yours = alice.deposit("demo", range(7, 40))
    bob.deposit("extra", range(12))
    alice.push()
    refused = bob.push()
    assert refused.codes == [4] and "kvg pull" in refused.findings[0].hint
    assert refused.states["extra"] == "new"
    assert bob.store.ref("demo") == mine
    seen = alice.pull(trust=[bob.key.public.keyid])
    assert not seen.findings and alice.store.ref("demo") == yours
    assert alice.store.ref("extra") is not None


def test_a_ref_is_taken_off(place: Place, tmp_path: Path) -> None:
    alice = Person.make(tmp_path / "alice", place.access).init().add(place.to)
    alice.deposit("demo")
    alice.deposit("other", range(30))
    alice.push()
    gone = alice.push("demo", delete=True)
    assert gone.states == {"demo": "deleted"}
    bob = Person.make(tmp_path / "bob", place.access)
    assert bob.clone(place.source, alice).states == {"other": "new"}
    assert "demo" not in alice.push().states  # who took it off puts it back by its name
    assert alice.push("demo").states == {"demo": "new"}


def test_read_back(place: Place, tmp_path: Path) -> None:
    alice = Person.make(tmp_path / "alice", place.access).init().add(place.to)
    alice.deposit("demo")
    assert not alice.push(read_back=True).findings
    assert alice.push(read_back=True).transfer.objects_sent == 0


def test_of_two_pushes_at_once_one_is_refused(place: Place, tmp_path: Path) -> None:
    """Both looked before either moved the pointer."""
    from kvg.remote import Pointer, open_remote

    if place.to != place.source:
        pytest.skip("a web server takes nothing")
    alice = Person.make(tmp_path / "alice", place.access).init().add(place.to)
    alice.deposit("demo")
    alice.push()
    remote = open_remote(place.to, cwd=tmp_path, access=place.access)
    before = remote.pointer("demo")
    if place.to.startswith("oci"):
        with pytest.raises(Conflict, match="meanwhile"):
            remote.move("demo", None, expect=Pointer(alice.store.log.origin, 90))
        return  # a registry replaces a tag without a condition; README and the module say so
    origin = alice.store.log.origin
    remote.move("demo", Pointer(origin, 90), expect=before)
    with pytest.raises(Conflict, match="meanwhile"):
        remote.move("demo", Pointer(origin, 91), expect=before)
    assert remote.pointer("demo") == Pointer(origin, 90)
    remote.close()


def spoil(place: Place, digest: str, folder: Path, share: Path) -> None:
    """Change one bit of what lies at a remote as the object ``digest``; its size stays."""
    from kvg.remote.layout import object_name

    if place.to.startswith("s3:"):
        from kvg.remote.s3 import S3Files

        files = S3Files(place.to, place.access)
        data = bytearray(files.read(object_name(digest), 1 << 20) or b"")
        data[-1] ^= 1
        files.write(object_name(digest), [data])
        return
    path = share / object_name(digest)
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_damage_of_unchanged_size_is_found_by_who_pulls_and_mended_by_who_pushes(
    place: Place, tmp_path: Path, share: Path
) -> None:
    """A push sees nothing; a pull names object and remote, and takes it from another remote."""
    if place.to.startswith("oci"):
        pytest.skip("a registry's own test is below")
    if (tmp_path / "nginx").exists():
        pytest.skip("another web server says the same")
    alice = Person.make(tmp_path / "alice", place.access).init().add(place.to)
    bob = Person.make(tmp_path / "bob", place.access)
    digest = alice.deposit("demo")
    alice.push()
    page = alice.store.manifest(digest).pages[0].digest
    spoil(place, page, tmp_path, share)
    assert alice.push("demo").transfer.objects_sent == 0
    (refused,) = bob.clone(place.source, alice).findings
    assert refused.code == 5 and page[:13] in refused.message
    assert refused.hint == (
        "damaged on origin: who has it whole puts it there anew, kvg push origin --verify"
    )
    assert not bob.store.own_refs()
    alice.add(tmp_path / "second", "second")
    tuple(push(alice.store, alice.settings, "second", ()))
    bob.add(tmp_path / "second", "second")
    taken = bob.pull()
    assert not taken.findings and bob.store.ref("demo") == digest and whole(bob).bytes_ok
    assert any("came from second" in text and "--verify" in text for text in bob.report.told)
    assert alice.push(read_back=True).transfer.objects_sent == 1
    carol = Person.make(tmp_path / "carol", place.access)
    assert carol.clone(place.source, alice).states == {"demo": "new"}


def test_a_damaged_blob_is_named_and_mended_where_the_registry_lets(
    oci_server: Oci, tmp_path: Path
) -> None:
    url = oci_server.url(f"team/kv-{uuid.uuid4().hex}")
    alice = Person.make(tmp_path / "alice", oci_server.access).init().add(url)
    digest = alice.deposit("demo", range(700, 760))
    alice.push()
    page = alice.store.manifest(digest).pages[0].digest
    stored = bytes(alice.store.objects.read_stored(page, what="page"))
    name = sha256(stored).partition(":")[2]
    (path,) = oci_server.folder.rglob(f"{name}/data")
    path.write_bytes(stored[:-1] + bytes([stored[-1] ^ 1]))
    assert alice.push("demo").transfer.objects_sent == 0
    bob = Person.make(tmp_path / "bob", oci_server.access)
    (refused,) = bob.clone(url, alice).findings
    assert refused.code == 5 and page[:13] in refused.message and "origin" in (refused.hint or "")
    told = alice.push(read_back=True)
    assert told.codes == [5] and name[:12] in told.findings[0].message
    assert "removes the file of that blob" in (told.findings[0].hint or "")
    path.unlink()
    assert not alice.push(read_back=True).findings
    assert bob.pull().states == {"demo": "new"}
