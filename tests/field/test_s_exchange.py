"""Field reports of stores that sync (FIELD s01 to s08, s18), each as what a user would do."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from kvg import codec as kvz
from kvg.digest import Digest, blake3_hex, hex_of, sha256, shake256, short
from kvg.errors import Corrupt, KvgError, RemoteFailed
from kvg.flow.bundle import bundle_apply, bundle_create
from kvg.remote import open_remote
from kvg.remote.directory import DirectoryFiles
from kvg.remote.layout import object_name
from kvg.store import Store
from kvg.verify import check_store
from tests.exchange.conftest import Person
from tests.exchange.test_crash import killed_at
from tests.store.faults import hooked


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda fd: None)


@pytest.fixture
def share(tmp_path: Path) -> Path:
    return tmp_path / "share"


@pytest.fixture
def alice(tmp_path: Path, share: Path) -> Person:
    return Person.make(tmp_path / "alice").init().add(share)


@pytest.fixture
def bob(tmp_path: Path) -> Person:
    return Person.make(tmp_path / "bob")


def is_whole(store: Store) -> bool:
    *findings, _ = check_store(store)
    return not findings


def there(share: Path) -> set[str]:
    return {
        path.parent.name + path.name for path in (share / "objects").rglob("*") if path.is_file()
    }


def cut_after(monkeypatch: pytest.MonkeyPatch, n_objects: int) -> None:
    """Let the share go away once ``n_objects`` were put there."""
    left, write = n_objects, DirectoryFiles.write

    def limited(self: DirectoryFiles, name: str, parts: object) -> None:
        nonlocal left
        if name.startswith("objects/"):
            left -= 1
            if left < 0:
                raise RemoteFailed(f"{name}: gone")
        write(self, name, parts)

    monkeypatch.setattr(DirectoryFiles, "write", limited)


def test_field_s01_an_upload_goes_on_where_it_was_cut(
    alice: Person, share: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice.deposit("demo")
    with monkeypatch.context() as patch:
        cut_after(patch, 4)
        with pytest.raises(RemoteFailed):
            alice.push()
    done = len(there(share))
    assert done >= 4
    again = alice.push().transfer
    assert (again.objects_sent, again.objects_skipped) == (10 - done, done)


@pytest.mark.parametrize("is_page", [False, True])
def test_field_s01_a_download_goes_on_at_the_last_whole_frame(bob: Person, is_page: bool) -> None:
    from kvg.flow.exchange.arriving import Arrival, Wanted

    bob.init()
    raw = shake256(b"long", 2 * kvz.FRAME_SIZE + 1000)
    digest = sha256(raw)
    stored = b"".join(kvz.encode(raw, digest=digest, codec=kvz.RAW).parts())
    wanted = Wanted(digest, "it", size=len(raw), is_page=is_page)
    header = kvz.parse_header(stored, what="it")
    n_good = header.data_offset + header.frames[0].stored_size
    quarantine = bob.store.quarantine
    with pytest.raises(RemoteFailed), Arrival(quarantine, wanted, join=None) as first:
        first.add(stored[: n_good + 4000])
        first.add(stored[n_good + 4000 : n_good + 5000])
        raise RemoteFailed("cut")
    with Arrival(quarantine, wanted, join=None) as second:
        assert second.size == n_good
        second.add(stored[n_good:])
        had = second.end()
    quarantine.settle()
    assert had.blake3 == (blake3_hex(raw) if is_page else None)
    assert quarantine.read_stored(digest, what="it") == stored
    assert not list(quarantine.folder.glob("*.part"))


def test_field_s02_a_pointer_comes_after_the_bytes_it_stands_for(
    alice: Person, share: Path
) -> None:
    digest = alice.deposit("demo")
    order: list[str] = []

    def hook(name: str, path: str) -> None:
        if name == "rename" and str(share) in path:
            order.append(path.removeprefix(f"{share}/").partition("/")[0])

    with hooked(hook):
        alice.push()
    pointer = order.index("refs")
    assert "objects" not in order[pointer:] and "logs" not in order[pointer:]
    assert order.index("logs") > max(i for i, kind in enumerate(order) if kind == "objects")
    assert (share / object_name(digest)).exists()


def test_field_s03_a_second_upload_is_not_undone_by_the_end_of_the_first(share: Path) -> None:
    files = DirectoryFiles(share)
    remote = open_remote(str(share), cwd=share)
    remote.make()
    digest = sha256(b"one")
    stored = b"".join(kvz.encode(b"one", digest=digest, codec=kvz.ZSTD).parts())

    def broken() -> object:
        yield stored[:5]
        remote.put(digest, [stored])  # the retry, done while the first is under way
        raise RemoteFailed("the first dies")

    with pytest.raises(RemoteFailed):
        files.write(object_name(digest), broken())
    assert remote.missing([digest]) == frozenset()
    assert b"".join(remote.get(digest, limit=1000)) == stored


def test_field_s04_what_a_cut_upload_left_is_looked_at_again(alice: Person, share: Path) -> None:
    digest = alice.deposit("demo")
    page = alice.store.manifest(digest).pages[0].digest
    path = share / object_name(page)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"KVZ1 half of it")
    assert not alice.push().findings
    raw = kvz.decode(path.read_bytes(), digest=page, size=None, what="page")
    assert sha256(raw) == page


def test_field_s05_one_bad_object_costs_nothing_that_was_done(alice: Person, share: Path) -> None:
    bad, good = alice.deposit("bad"), alice.deposit("good", range(60, 99))
    page = next(iter(_pages(alice, bad) - _pages(alice, good)))
    path = alice.store.objects.stored_path(page)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.chmod(0o644)
    path.write_bytes(bytes(data))
    pushed = alice.push()
    assert pushed.codes == [5] and pushed.states == {"good": "new"}
    assert (share / object_name(good)).exists() and not (share / "refs" / "bad").exists()
    assert alice.push().transfer.objects_skipped > 0


def _pages(person: Person, digest: Digest) -> set[Digest]:
    return {page.digest for page in person.store.manifest(digest).pages}


def test_field_s06_a_killed_push_leaves_no_half_object(alice: Person, share: Path) -> None:
    alice.deposit("demo")
    for at in (3, 11, 29, 47):
        killed_at(alice.push, at)
        for path in (share / "objects").rglob("*") if (share / "objects").exists() else ():
            if path.is_file():
                name = Digest(f"sha256:{path.parent.name}{path.name}")
                kvz.decode(path.read_bytes(), digest=name, size=None, what="object")
    assert not alice.push().findings


def test_field_s07_up_to_date_is_no_word_for_what_is_damaged(alice: Person, share: Path) -> None:
    digest = alice.deposit("demo")
    alice.push()
    page = share / object_name(alice.store.manifest(digest).pages[0].digest)
    data = bytearray(page.read_bytes())
    data[-1] ^= 1
    page.chmod(0o644)
    page.write_bytes(bytes(data))
    mended = alice.push(read_back=True)
    assert not mended.findings and mended.transfer.objects_sent == 1
    assert alice.push(read_back=True).transfer.objects_sent == 0


def test_field_s08_what_is_there_is_pulled_and_what_is_not_is_listed(
    alice: Person, bob: Person, share: Path
) -> None:
    broken, whole = alice.deposit("broken"), alice.deposit("whole", range(60, 99))
    alice.push()
    lost = sorted(_pages(alice, broken) - _pages(alice, whole))[:2]
    for page in lost:
        (share / object_name(page)).unlink()
    found = bob.clone(share, alice)
    assert found.codes == [5, 5]
    told = " ".join(f"{finding.message}" for finding in found.findings)
    assert all(hex_of(page)[2:] in told or short(page) in told for page in lost), told
    assert bob.store.own_refs() == {"whole": whole} and is_whole(bob.store)
    assert alice.push(read_back=True).transfer.objects_sent == 2
    assert bob.pull().transfer.objects_sent <= 2 + 1 and bob.store.ref("broken") == broken


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
@pytest.mark.parametrize("name", ["blobs/sha256/" + "0" * 64, "../outside", "/etc/kvg"])
def test_field_s18_a_link_in_a_bundle_leads_nowhere(
    alice: Person, bob: Person, tmp_path: Path, kind: bytes, name: str
) -> None:
    alice.deposit("demo")
    made = tmp_path / "b.tar"
    bundle_create(alice.store, alice.settings, made)
    with tarfile.open(made, "a") as tar:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, "../../outside"
        tar.addfile(member, io.BytesIO())
    bob.init()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises((Corrupt, KvgError)) as told:
        tuple(bundle_apply(bob.store, bob.settings, made))
    assert told.value.code == 5
    assert sorted(tmp_path.rglob("*")) == before
