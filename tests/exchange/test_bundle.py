"""Bundles: one file, an OCI image layout, that nothing leads out of."""

from __future__ import annotations

import io
import json
import os
import tarfile
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from kvg.errors import Corrupt, KvgError, NotFound, UsageError
from kvg.flow.bundle import bundle_apply, bundle_create, bundle_list, bundle_verify
from kvg.flow.records.exchange import BundleSummary
from kvg.objects.manifest import PAGE_MEDIA_TYPE
from kvg.remote import oci
from kvg.remote.bundle import Bundle
from kvg.verify import verify_artifact
from tests.exchange.conftest import Outcome, Person


@pytest.fixture
def made(alice: Person) -> Path:
    """A bundle of two refs."""
    alice.deposit("docs/a")
    alice.deposit("b", range(40))
    path = alice.folder / "two.tar"
    record = bundle_create(alice.store, alice.settings, path)
    assert (record.refs, record.state) == (2, "created")
    assert record.bytes == path.stat().st_size
    return path


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path, "r:") as tar:
        return {item.name: tar.extractfile(item).read() for item in tar.getmembers()}


def apply(person: Person, path: Path, *refs: str, trust: tuple[str, ...] = ()) -> Outcome:
    return Outcome(tuple(bundle_apply(person.store, person.settings, path, refs, trust=trust)))


def test_bundle_is_an_oci_image_layout(made: Path, alice: Person) -> None:
    found = members(made)
    assert json.loads(found["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads(found["index.json"])
    assert index["mediaType"] == "application/vnd.oci.image.index.v1+json"
    for name, data in found.items():
        if name.startswith("blobs/sha256/"):
            assert sha256(data).hexdigest() == name.removeprefix("blobs/sha256/")
    tags = {
        item["annotations"]["dev.kvg.ref"]: item
        for item in index["manifests"]
        if "dev.kvg.ref" in item.get("annotations", {})
    }
    item = tags["docs/a"]
    assert item["annotations"]["org.opencontainers.image.ref.name"] == "docs..a"
    image = json.loads(found["blobs/sha256/" + item["digest"].removeprefix("sha256:")])
    assert image["artifactType"] == "application/vnd.kvg.artifact.v1"
    assert image["config"]["digest"] == alice.store.ref("docs/a")
    for layer in (image["config"], *image["layers"]):
        assert (
            len(found["blobs/sha256/" + layer["digest"].removeprefix("sha256:")]) == layer["size"]
        )


def test_same_store_gives_the_same_bytes(made: Path, alice: Person) -> None:
    again = alice.folder / "again.tar"
    bundle_create(alice.store, alice.settings, again)
    assert again.read_bytes() == made.read_bytes()


def test_bundle_is_listed_verified_and_applied(made: Path, alice: Person, bob: Person) -> None:
    *listed, _ = bundle_list(bob.settings, made)
    assert [(item.ref, item.tokens) for item in listed] == [("b", 40), ("docs/a", 27)]
    *findings, summary = bundle_verify(alice.store, alice.settings, made)
    assert not findings and summary.refs == 2
    bob.init()
    assert apply(bob, made).codes == [6, 6]
    taken = apply(bob, made, trust=(alice.key.public.keyid[:8],))
    assert taken.states == {"b": "new", "docs/a": "new"}
    assert bob.store.refs() == alice.store.own_refs()
    for digest in bob.store.refs().values():
        for page in verify_artifact(bob.store, digest).manifest.pages:
            bob.store.objects.read(page.digest, size=page.size, what="page")
    assert apply(bob, made).states == {"b": "unchanged", "docs/a": "unchanged"}
    with pytest.raises(NotFound):
        bundle_create(alice.store, alice.settings, made, ["nothing"])


def test_older_bundle_is_a_rollback(made: Path, alice: Person, bob: Person) -> None:
    bob.init()
    apply(bob, made, trust=(alice.key.public.keyid,))
    alice.deposit("b", range(41))
    newer = alice.folder / "newer.tar"
    bundle_create(alice.store, alice.settings, newer)
    assert apply(bob, newer).states["b"] == "moved"
    assert apply(bob, made).codes == [6, 6]


def test_bundle_without_pages(alice: Person, bob: Person, share: Path) -> None:
    digest = alice.deposit("demo")
    alice.push()
    path = alice.folder / "thin.tar"
    bundle_create(alice.store, alice.settings, path, pages=False)
    assert not [f for f in bundle_verify(alice.store, alice.settings, path) if f.exit_code]
    bob.init().add(share)
    assert apply(bob, path, trust=(alice.key.public.keyid,)).states == {"demo": "attested"}
    assert any("no ref was moved" in text for text in bob.report.told)
    assert bob.store.refs() == {} and bob.store.artifacts() == (digest,)
    pages = bob.store.manifest(digest).pages
    assert not any(bob.store.objects.has(page.digest) for page in pages)
    # The share has an older log than the bundle, and says the same of the ref.
    assert bob.pull("demo").states == {"demo": "new"}
    assert all(bob.store.objects.has(page.digest) for page in pages)


def rewritten(path: Path, change: Callable[[tarfile.TarFile], None], **more: bytes) -> Path:
    """The bundle with members more, or others in their place, after ``change``."""
    kept = members(path)
    target = path.with_name("changed.tar")
    with tarfile.open(target, "w") as tar:
        change(tar)
        for name, data in {**kept, **more}.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return target


def entry(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = ""
) -> Callable[[tarfile.TarFile], None]:
    def change(tar: tarfile.TarFile) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, link
        tar.addfile(info)

    return change


HEX = "ab" * 32


@pytest.mark.parametrize(
    "change",
    [
        entry("../escape"),
        entry("/etc/passwd"),
        entry("blobs/sha256/../../x"),
        entry("blobs/sha256/" + HEX, tarfile.SYMTYPE, "/etc/passwd"),
        entry("blobs/sha256/" + HEX, tarfile.LNKTYPE, "index.json"),
        entry("blobs/sha256/" + HEX, tarfile.CHRTYPE),
        entry("blobs/sha256/" + HEX, tarfile.FIFOTYPE),
        entry("blobs/sha256/" + HEX.upper()),
        entry("blobs/sha512/" + HEX),
        entry("README"),
        entry("index.json", tarfile.SYMTYPE, "/etc/passwd"),
        entry("somewhere", tarfile.DIRTYPE),
        entry("index.json"),
    ],
)
def test_members_that_have_no_business_there(
    made: Path, bob: Person, change: Callable[[tarfile.TarFile], None]
) -> None:
    bad = rewritten(made, change)
    bob.init()
    before = sorted(bob.folder.rglob("*"))
    with pytest.raises(Corrupt):
        apply(bob, bad)
    assert sorted(bob.folder.rglob("*")) == before


@pytest.mark.parametrize("part", [0.0, 0.01, 0.3, 0.9, 0.999])
def test_bundle_cut_short(made: Path, bob: Person, part: float) -> None:
    data = made.read_bytes()
    made.write_bytes(data[: int(len(data) * part)])
    bob.init()
    before = dict(bob.store.refs())
    try:
        outcome = apply(bob, made)
        assert outcome.findings
    except Corrupt:
        pass
    assert bob.store.refs() == before


def test_every_damaged_blob_is_found(made: Path, alice: Person) -> None:
    names = [name for name in members(made) if name.startswith("blobs/")]
    data = made.read_bytes()
    with tarfile.open(made, "r:") as tar:
        spans = {item.name: (item.offset_data, item.size) for item in tar.getmembers()}
    for name in names:
        start, size = spans[name]
        bad = bytearray(data)
        bad[start + size // 2] ^= 1
        made.write_bytes(bad)
        try:
            *findings, _ = bundle_verify(alice.store, alice.settings, made)
            assert findings, name
            hints = [finding.hint for finding in findings if finding.code == 5]
        except KvgError as error:
            assert error.code == 5
            hints = [error.hint]
        assert all("copy it again" in (hint or "") for hint in hints), (name, hints)


def test_a_page_is_named_where_it_is_damaged(made: Path, alice: Person) -> None:
    (name, *_) = blobs_of(made, PAGE_MEDIA_TYPE)
    with tarfile.open(made, "r:") as tar:
        item = tar.getmember(name)
    bad = bytearray(made.read_bytes())
    bad[item.offset_data + item.size - 1] ^= 1
    made.write_bytes(bad)
    *findings, _ = bundle_verify(alice.store, alice.settings, made)
    assert any(": page " in finding.message for finding in findings), findings


def test_a_dry_run_counts_what_it_would_hold(made: Path, alice: Person) -> None:
    settings = replace(alice.settings, dry_run=True)
    record = bundle_create(alice.store, settings, Path("dry.tar"))
    assert record.dry_run and record.objects and not (alice.folder / "dry.tar").exists()
    assert record.bytes == made.stat().st_size


def test_a_command_that_names_a_bundle_can_be_pasted(alice: Person, bob: Person) -> None:
    alice.deposit("demo")
    path = Path("a b.tar")
    bundle_create(alice.store, alice.settings, path)
    bob.init()
    (bob.folder / path).write_bytes((alice.folder / path).read_bytes())
    (refused,) = apply(bob, path).findings
    assert "kvg bundle apply 'a b.tar' --trust" in (refused.hint or "")


def test_a_file_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for data in (b"", b"hello", bytes(10240), b"\x1f\x8b" + bytes(600)):
        path.write_bytes(data)
        with pytest.raises(Corrupt):
            Bundle(path)
    with pytest.raises(NotFound):
        Bundle(tmp_path / "nothing")


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_nothing_but_a_plain_file_is_replaced(alice: Person, kind: str) -> None:
    alice.deposit("demo")
    path, other = alice.folder / "b.tar", alice.folder / "other"
    other.write_bytes(b"kept")
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(other)
    before = os.lstat(path)
    with pytest.raises(UsageError, match=r"b\.tar: (a link|not a plain file)"):
        bundle_create(alice.store, alice.settings, path)
    assert os.lstat(path).st_mode == before.st_mode
    assert other.read_bytes() == b"kept"


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_no_plain_file_is_no_bundle(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "b.tar"
    if kind == "pipe":
        os.mkfifo(path)  # nobody waits for its other end
    else:
        path.mkdir()
    with pytest.raises(UsageError, match="not a plain file"):
        Bundle(path)


def without(path: Path, *names: str, **more: bytes) -> Path:
    """The bundle without some of its members, and with others."""
    kept = members(path)
    target = path.with_name("changed.tar")
    with tarfile.open(target, "w") as tar:
        for name, data in {**kept, **more}.items():
            if name not in names:
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return target


def blobs_of(path: Path, kind: str) -> list[str]:
    """The members that hold blobs of the media type ``kind``."""
    found = members(path)
    named: dict[str, None] = {}
    for item in json.loads(found["index.json"])["manifests"]:
        image = json.loads(found["blobs/sha256/" + item["digest"].removeprefix("sha256:")])
        for layer in (image["config"], *image["layers"]):
            if layer["mediaType"] == kind:
                named["blobs/sha256/" + layer["digest"].removeprefix("sha256:")] = None
    return list(named)


def verify(person: Person, path: Path) -> tuple[list[int], BundleSummary]:
    *findings, summary = bundle_verify(person.store, person.settings, path)
    return [finding.code for finding in findings], summary


def test_a_bundle_is_verified_only_where_nothing_is_wrong(made: Path, bob: Person) -> None:
    codes, summary = verify(bob.init(), made)
    assert codes == [6, 6] and (summary.state, summary.refs) == ("refused", 0)


@pytest.mark.parametrize("kind", [oci.RECEIPT, oci.EMPTY, oci.STORED])
def test_what_images_name_has_to_be_there(
    made: Path, alice: Person, bob: Person, kind: str
) -> None:
    first, *_ = blobs_of(made, kind)
    changed = without(made, first)
    codes, summary = verify(alice, changed)
    assert codes == [5] and summary.state == "refused"
    taken = apply(bob.init(), changed, trust=(alice.key.public.keyid,))
    assert taken.codes == [5] and first.removeprefix("blobs/sha256/")[:6] in str(taken.findings)
    assert taken.states == {"b": "new", "docs/a": "new"}  # what is there is taken


def test_each_object_is_read_and_counted(made: Path, alice: Person) -> None:
    written = bundle_create(alice.store, alice.settings, made)
    codes, summary = verify(alice, made)
    assert not codes and (summary.state, summary.objects) == ("verified", written.objects)
    thin = made.with_name("thin.tar")
    written = bundle_create(alice.store, alice.settings, thin, pages=False)
    assert verify(alice, thin)[1].objects == written.objects


def test_a_source_that_is_another_is_found(made: Path, alice: Person) -> None:
    """Its blob is what its name says, and its image's word for what object that is, is a lie."""
    (source,) = blobs_of(made, oci.STORED)
    other = b"KVZ1 or not"
    data = members(made)[source]
    lie = {
        name: raw.replace(
            sha256(data).hexdigest().encode(), sha256(other).hexdigest().encode()
        ).replace(f'"size":{len(data)}'.encode(), f'"size":{len(other)}'.encode())
        for name, raw in members(made).items()
        if sha256(data).hexdigest().encode() in raw
    }
    index = members(made)["index.json"]
    new = {"blobs/sha256/" + sha256(other).hexdigest(): other}
    for image, raw in lie.items():
        old = members(made)[image]
        index = index.replace(sha256(old).hexdigest().encode(), sha256(raw).hexdigest().encode())
        index = index.replace(f'"size":{len(old)}'.encode(), f'"size":{len(raw)}'.encode())
        new["blobs/sha256/" + sha256(raw).hexdigest()] = raw
    new["index.json"] = index
    codes, summary = verify(alice, without(made, source, *lie, **new))
    assert 5 in codes and summary.state == "refused"


def test_nothing_follows_the_end_and_the_end_is_there(made: Path, alice: Person) -> None:
    data = made.read_bytes()
    for tail in (data + b"x", data + bytes(512) + b"more", data + data, data[:-1024], data[:-600]):
        made.write_bytes(tail)
        with pytest.raises(Corrupt, match=r"end of the archive"):
            verify(alice, made)
        with pytest.raises(Corrupt):
            apply(alice, made)
    made.write_bytes(data + bytes(9 * 512))  # as other tools fill up their last record
    assert not verify(alice, made)[0]


def test_what_fills_up_a_member_is_zero(made: Path, bob: Person) -> None:
    data = bytearray(made.read_bytes())
    with tarfile.open(made) as tar:
        ends = [m.offset_data + m.size for m in tar if m.size % 512]
    for end in (ends[0], ends[-1] - ends[-1] % -512 - 1):
        changed = bytearray(data)
        changed[end] = 7
        made.write_bytes(changed)
        with pytest.raises(Corrupt, match="not zero"):
            tuple(bundle_apply(bob.init().store, bob.settings, made))


def test_a_blob_that_nothing_names_is_told(made: Path, alice: Person) -> None:
    blob = b"what is this"
    name = "blobs/sha256/" + sha256(blob).hexdigest()
    codes, summary = verify(alice, without(made, **{name: blob}))
    assert codes == [5] and summary.state == "refused" and summary.refs == 2


@pytest.mark.parametrize("kind", [b"L", b"K", b"x", b"g"])
def test_a_header_that_goes_on_for_gigabytes_is_not_read(tmp_path: Path, kind: bytes) -> None:
    path = tmp_path / "x.tar"
    header = tarfile.TarInfo("././@LongLink")
    header.size, header.type = 3 << 30, kind
    with open(path, "wb") as file:
        file.write(header.tobuf())
        file.truncate(header.size + 4096)
    tracemalloc.start()
    try:
        with pytest.raises(Corrupt, match="goes on"):
            Bundle(path)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
