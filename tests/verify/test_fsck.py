from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvg.digest import Digest, hex_of, sha256
from kvg.errors import Untrusted
from kvg.signing.cosignature import encode_witness
from kvg.store import Store
from kvg.store.rekey import rekey
from kvg.trust import DEPOSITOR, sign_trust
from kvg.verify.findings import Finding
from kvg.verify.fsck import FsckSummary, Repaired, fsck
from tests import artifacts as a
from tests.verify.test_corruption import WITNESS, cosigned

Everything = list[Finding | Repaired | FsckSummary]


def look(
    store: Store, *, repair: bool = False
) -> tuple[list[Finding], list[Repaired], FsckSummary]:
    found: Everything = list(fsck(store, repair=repair))
    last = found[-1]
    assert isinstance(last, FsckSummary)
    findings = [item for item in found if isinstance(item, Finding)]
    assert last.faults == len(findings)
    return findings, [item for item in found if isinstance(item, Repaired)], last


def flip(path: Path, place: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)


def two(tmp_path: Path) -> tuple[Store, a.Made, a.Made]:
    store, key = a.make_store(tmp_path)
    return (
        store,
        a.deposit(store, key, ref="one", ids=range(20)),
        a.deposit(store, key, ref="two", ids=range(100, 127)),
    )


def test_a_good_store_has_no_faults(tmp_path: Path) -> None:
    store, _, two_ = two(tmp_path)
    store.set_ref("two", None)
    findings, repaired, summary = look(store, repair=True)
    assert findings == [] and repaired == []
    assert summary.objects == len(list(store.objects.all())) and summary.artifacts == 2
    assert summary.log_entries == store.log.size and summary.unreachable
    assert not (store.root / "lost-found").exists() and store.objects.has(two_.digest)


def test_field_s17_fsck_names_every_fault_and_goes_on(tmp_path: Path) -> None:
    store, one, two_ = two(tmp_path)
    bad = [one.manifest.pages[0].digest, two_.manifest.tokens.digest, two_.envelopes[0]]
    for digest in bad:
        flip(store.objects.stored_path(digest))
    lost = two_.manifest.pages[1].digest
    os.unlink(store.objects.stored_path(lost))
    findings, _, summary = look(store)
    assert {finding.object for finding in findings} == {*bad, lost}
    assert {finding.code for finding in findings} == {5}
    assert "missing" in next(f.message for f in findings if f.object == lost)
    assert summary.objects == len(list(store.objects.all())) - 3


def test_repair_moves_and_deletes_nothing(tmp_path: Path) -> None:
    store, one, two_ = two(tmp_path)
    page = one.manifest.pages[0].digest
    flip(store.objects.stored_path(page))
    spoilt = store.objects.stored_path(page).read_bytes()
    (store.objects.folder / "README").write_text("x", encoding="utf-8")
    findings, repaired, _ = look(store, repair=True)
    assert {f.object for f in findings} == {page, "objects/README"}
    moved = {item.object: item.moved_to for item in repaired}
    assert moved == {
        page: f"lost-found/{hex_of(page)}.0",
        "objects/README": "lost-found/README.0",
    }
    assert (store.root / "lost-found" / f"{hex_of(page)}.0").read_bytes() == spoilt
    findings, repaired, _ = look(store, repair=True)
    assert [f.object for f in findings] == [page] and "missing" in findings[0].message
    assert repaired == []
    key = a.key_of("alice")
    a.deposit(store, key, ref="one", ids=range(20))
    assert look(store)[0] == [] and store.refs()["two"] == two_.digest


def test_an_object_that_nothing_needs_is_checked_too(tmp_path: Path) -> None:
    store, _, _ = two(tmp_path)
    with store.pending() as pending:
        digest = pending.put(b"alone").digest
    flip(store.objects.stored_path(digest))
    findings, repaired, _ = look(store, repair=True)
    assert [f.object for f in findings] == [digest] and len(repaired) == 1
    assert look(store)[0] == []


def test_a_page_that_lies_about_its_blake3_is_named_and_left(tmp_path: Path) -> None:
    from dataclasses import replace

    from kvg.objects.manifest import encode_manifest
    from kvg.objects.tokens import encode_ids

    store, _ = a.make_store(tmp_path)
    manifest, raws = a.build(range(9))
    first = replace(manifest.pages[0], blake3="0" * 64)
    manifest = replace(manifest, pages=(first, *manifest.pages[1:]))
    with store.pending() as pending:
        for digest, (raw, start) in raws.items():
            pending.put(raw, digest=digest, data_start=start)
        pending.put(encode_ids(range(9)))
        liar = pending.put(encode_manifest(manifest)).digest
        store.set_ref("liar", liar)
    findings, repaired, _ = look(store, repair=True)
    assert [f.object for f in findings] == [liar] and "BLAKE3" in findings[0].message
    assert repaired == []


def test_the_index_is_compared_with_the_files_and_rebuilt(tmp_path: Path) -> None:
    from kvg.store import tables as t

    store, _, _ = two(tmp_path)
    store.index.note(lambda tables: tables.put(t.PINS, bytes(32), bytes(8)))
    store.index.note(lambda tables: tables.delete(t.REFS, b"one"))
    findings, _, _ = look(store)
    assert [f.object for f in findings] == ["index.lmdb"] * 2
    _, repaired, _ = look(store, repair=True)
    assert [item.object for item in repaired] == ["index.lmdb"]
    assert look(store)[0] == [] and set(store.refs()) == {"one", "two"}


def test_what_gc_takes_meanwhile_is_not_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _, _ = two(tmp_path)
    digest = store.objects.put(b"needed by nothing").digest
    listed = store.objects.all

    def taken_once_listed() -> Iterator[Digest]:
        for item in listed():
            if item == digest:
                store.objects.remove_all([item])
            yield item

    monkeypatch.setattr(store.objects, "all", taken_once_listed)
    findings, _, _ = look(store)
    assert findings == [] and not store.objects.has(digest)


@pytest.mark.parametrize("how", ["junk", "cut", "flip"])
def test_the_index_file_is_looked_at_before_it_is_mapped(tmp_path: Path, how: str) -> None:
    store, _, _ = two(tmp_path)
    store.close()
    path = store.root / "index.lmdb" / "data.mdb"
    if how == "junk":
        path.write_bytes(b"x" * 9000)
    elif how == "cut":
        os.truncate(path, 20000)
    else:
        data = bytearray(path.read_bytes())
        for place in range(len(data) // 2, len(data)):
            data[place] ^= 0x55
        path.write_bytes(data)
    findings, repaired, _ = look(store, repair=True)
    assert {f.object for f in findings} == {"index.lmdb"}
    assert {item.object for item in repaired} == {"index.lmdb"}
    assert look(store)[0] == []


def test_the_log_is_gone_through_to_its_end(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    one = a.deposit(store, key, ids=range(9))
    from kvg.store import RefMove

    moves = [RefMove("x", None if i % 2 else one.digest) for i in range(800)]
    store.publish(moves)
    for bundle in ("000", "002"):
        path = store.root / "log" / "tile" / "entries" / bundle
        data = bytearray(path.read_bytes())
        data[500] ^= 1
        path.chmod(0o644)
        path.write_bytes(data)
    findings, _, _ = look(Store.open(tmp_path))
    named = [f for f in findings if f.object == "log"]
    assert len(named) == 2 and "entries/000" in named[0].message
    assert "entries/002" in named[1].message
    assert len([f for f in findings if f.object != "log"]) == 0


def test_the_trust_file_is_put_back_from_the_log(tmp_path: Path) -> None:
    store, _, _ = two(tmp_path)
    path = store.root / "trust.json"
    signed = path.read_bytes()
    path.write_bytes(signed.replace(b'"version":1', b'"version":2'))
    findings, repaired, _ = look(store, repair=True)
    assert [f.object for f in findings] == ["trust.json"] and findings[0].code == 6
    assert [item.action for item in repaired] == ["moved", "restored from the log"]
    assert path.read_bytes() == signed and look(store)[0] == []


def test_field_s23_links_in_a_store_are_named_and_never_followed(tmp_path: Path) -> None:
    store, one, _ = two(tmp_path)
    page = one.manifest.pages[0].digest
    path = store.objects.stored_path(page)
    os.rename(path, tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    folder = store.objects.folder / hex_of(one.manifest.tokens.digest)[:2]
    shutil.move(folder, tmp_path / "folder")
    folder.symlink_to(tmp_path / "folder")
    findings, _, _ = look(store, repair=True)
    assert {page, f"objects/{folder.name}"} <= {f.object for f in findings}
    assert (tmp_path / "elsewhere").exists() and any((tmp_path / "folder").iterdir())
    assert not folder.is_symlink()


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    store, _, _ = two(tmp_path)
    digest = Digest(sha256(b"x"))
    store.objects.stored_path(digest).mkdir(parents=True)
    fifo = store.objects.stored_path(Digest(sha256(b"y")))
    fifo.parent.mkdir(exist_ok=True)
    os.mkfifo(fifo)
    findings, repaired, _ = look(store, repair=True)
    assert {f.object for f in findings} == {digest, sha256(b"y")} and len(repaired) == 2
    assert look(store)[0] == []


def test_a_writer_that_mended_it_meanwhile_is_left_alone(tmp_path: Path) -> None:
    store, one, _ = two(tmp_path)
    page = one.manifest.pages[0].digest
    flip(store.objects.stored_path(page))
    done: Everything = []
    for found in fsck(store, repair=True):
        done.append(found)
        if isinstance(found, Finding):
            a.deposit(store, a.key_of("alice"), ref="one", ids=range(20))
    assert not any(isinstance(item, Repaired) for item in done)
    assert look(store)[0] == []


def test_a_trust_file_that_is_gone_is_named_and_put_back(tmp_path: Path) -> None:
    store, _, _ = two(tmp_path)
    path = store.root / "trust.json"
    signed = path.read_bytes()
    path.unlink()
    findings, repaired, _ = look(store)
    assert [(f.object, f.code, f.hint) for f in findings] == [
        ("trust.json", 5, "kvg fsck --repair")
    ]
    assert "missing" in findings[0].message and repaired == []
    _, repaired, _ = look(store, repair=True)
    assert [item.action for item in repaired] == ["restored from the log"]
    assert path.read_bytes() == signed and look(store)[0] == []


def test_an_older_trust_file_is_named_and_put_right(tmp_path: Path) -> None:
    """What counts is the log's; but who swapped it for one before a revocation is told of."""
    store, made, _ = two(tmp_path)
    path = store.root / "trust.json"
    versions = [path.read_bytes()]
    for name in ("bob", "carol"):
        more = store.trust.with_key(a.key_of(name).public, [DEPOSITOR])
        store.set_trust(sign_trust(more, [a.key_of("alice")]))
        versions.append(path.read_bytes())
    path.write_bytes(versions[1])
    assert look(store)[0] == []  # as a change leaves it that was cut before the file
    store.set_ref("other", made.digest)
    assert path.read_bytes() == versions[2]  # which the next writer ends
    for old in versions[:2]:
        path.write_bytes(old)
        findings, _, _ = look(store)
        assert [(f.object, f.code) for f in findings] == [("trust.json", 5)]
        assert "the log knows version 3" in findings[0].message
        _, repaired, _ = look(store, repair=True)
        assert [item.action for item in repaired] == ["moved", "restored from the log"]
        assert path.read_bytes() == versions[2] and look(store)[0] == []


def test_a_trust_file_that_cannot_be_read_keeps_nobody_from_letting_go(tmp_path: Path) -> None:
    """A pipe in its place: nothing waits for it, and a ref is removed as ever."""
    store, _, _ = two(tmp_path)
    (store.root / "trust.json").unlink()
    os.mkfifo(store.root / "trust.json")
    store.set_ref("one", None)
    assert store.ref("one") is None


def test_a_first_trust_file_that_was_never_written_is_no_fault(tmp_path: Path) -> None:
    """Between the log and the file a crash leaves this; whoever signs next puts it there."""
    store, key = a.make_store(tmp_path)
    path = store.root / "trust.json"
    signed = path.read_bytes()
    path.unlink()
    assert store.trust_versions()[0][0] == 1 and look(store)[0] == []
    assert not store.trust_first(key)
    assert path.read_bytes() == signed and look(store)[0] == []


@pytest.mark.parametrize("name", ["extra", "search", "config.toml"])
def test_a_link_in_the_root_is_named_with_what_really_helps(tmp_path: Path, name: str) -> None:
    store, _, _ = two(tmp_path)
    path, elsewhere = store.root / name, tmp_path / "elsewhere"
    if path.exists():
        shutil.move(path, elsewhere)
    else:
        elsewhere.mkdir()
    path.symlink_to(elsewhere)
    findings, repaired, _ = look(store, repair=True)
    assert [f.object for f in findings] == [name] and repaired == []
    assert path.is_symlink() and findings[0].hint is not None
    assert "--repair" not in findings[0].hint and "by hand" in findings[0].hint


def test_what_witnesses_said_is_missed(tmp_path: Path) -> None:
    """Nothing else in a store needs it, so that whoever takes it away leaves no gap."""
    store, _, _ = two(tmp_path)
    cosigned(store.log)
    store.config.set("store.witnesses", (encode_witness(WITNESS),))
    path, whole = store.root / "log" / "cosigned", store.log.cosigned
    path.unlink()
    (found,) = look(Store.open(store.root))[0]  # its checkpoint is still the cosigned one
    assert (found.object, found.code) == ("log/cosigned", 5)
    path.write_bytes(whole)
    assert look(store)[0] == []
    size = store.log.size
    store.set_ref("three", store.refs()["two"])
    path.unlink()
    (found,) = look(store)[0]
    assert found.object == "log/cosigned" and found.message.endswith(
        f"missing: size {size}, cosigned by {WITNESS.name}, was seen here"
    )
    assert look(Store.open(store.root))[0] == []  # a stranger to it can't know
    kept = Path((found.hint or "").removeprefix("kvg log --cosigned ").split(" takes")[0])
    cosigned(store.log)
    assert store.log.size > size and look(store)[0] == []
    path.write_bytes(whole)
    (found,) = look(store)[0]
    assert "out of date" in found.message
    path.write_bytes(kept.read_bytes())
    assert look(store)[0] == []


def test_what_witnesses_said_outlives_a_change_of_key(tmp_path: Path) -> None:
    store, _, _ = two(tmp_path)
    cosigned(store.log)
    store.config.set("store.witnesses", (encode_witness(WITNESS),))
    assert look(store)[0] == []
    path, said = store.root / "log" / "cosigned", store.log.cosigned
    rekey(store, now=a.NOW)
    assert path.read_bytes() == said == store.log.cosigned and look(store)[0] == []
    path.unlink()
    (found,) = look(store)[0]
    assert found.object == "log/cosigned" and "missing" in found.message


def refusing(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """The disk no longer gives what is in ``path``."""
    wanted = path.stat()
    for name in ("read", "pread", "readv", "preadv"):
        given = getattr(os, name)

        def read(fd: int, *more: object, given: Callable[..., object] = given) -> object:
            if os.path.samestat(os.fstat(fd), wanted):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return given(fd, *more)

        monkeypatch.setattr(os, name, read)


@pytest.mark.parametrize("kind", ["tokens", "attestation", "manifest"])
def test_an_object_that_the_disk_refuses_is_named_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Also where the index is lost, which is folded from such objects."""
    store, one, other = two(tmp_path)
    digests = {
        "tokens": one.manifest.tokens.digest,
        "attestation": store.attestations(one.digest)[0].envelope,
        "manifest": one.digest,
    }
    store.close()
    refusing(monkeypatch, store.objects.stored_path(digests[kind]))
    for is_lost in (False, True):
        if is_lost:
            shutil.rmtree(store.root / "index.lmdb")
        findings, _, summary = look(store)
        assert any("Input/output error" in item.message for item in findings), findings
        assert summary.artifacts >= 1
        assert store.refs() == {"one": one.digest, "two": other.digest}
        store.close()
    store.reindex()
    monkeypatch.undo()
    store.reindex()
    assert look(store)[0] == []


@pytest.mark.parametrize(
    "name", ["tmp", "tmp/pending", "objects", "lost-found", "peers", "forgotten", "reserve"]
)
def test_what_is_no_folder_where_one_belongs_is_named_and_moved(tmp_path: Path, name: str) -> None:
    store, _, _ = two(tmp_path)
    store.close()
    path, aside = store.root / name, tmp_path / "aside"
    if path.is_dir():
        shutil.move(path, aside)
    path.parent.mkdir(exist_ok=True)
    path.write_text("what nobody put there")
    findings, _, _ = look(store)
    assert (findings[0].object, findings[0].code) == (name, 5)
    assert "no folder" in findings[0].message
    _, repaired, _ = look(store, repair=True)
    moved = store.root / str(repaired[0].moved_to)
    assert repaired[0].object == name and moved.read_text() == "what nobody put there"
    if name == "objects":
        shutil.rmtree(path)
        shutil.move(aside, path)
    assert look(store)[0] == []


def test_a_log_that_went_back_is_told_as_often_as_it_is_looked_at(tmp_path: Path) -> None:
    """The index knows of more; what is made anew from the log alone would forget it."""
    store, one, _ = two(tmp_path)
    old = tmp_path / "old"
    shutil.copytree(store.root / "log", old)
    store.set_ref("newer", one.digest)
    assert "newer" in store.refs()
    store.close()
    shutil.rmtree(store.root / "log")
    shutil.copytree(old, store.root / "log")
    for repair in (False, True, False):
        findings, repaired, _ = look(Store.open(store.root), repair=repair)
        assert [f.code for f in findings] == [6] and "rolled back" in findings[0].message
        assert repaired == []
    for use in (
        lambda found: found.refs(),
        lambda found: found.log.size,
        lambda found: found.set_ref("q", one.digest),
        lambda found: found.trust,
    ):
        with pytest.raises(Untrusted, match="rolled back from size"):
            use(Store.open(store.root))
    assert Store.open(store.root).reindex()
    found = Store.open(store.root)
    assert "newer" not in found.refs() and look(found)[0] == []


def test_the_source_of_deposits_that_is_gone_is_named_once(tmp_path: Path) -> None:
    store, _, _ = two(tmp_path)
    source = sha256(a.SOURCE)
    os.unlink(store.objects.stored_path(source))
    findings, _, _ = look(store)
    assert [f.object for f in findings] == [source]
    assert "handbook.md" in findings[0].message and "missing" in findings[0].message


def test_the_trust_files_object_is_made_anew_from_the_file(tmp_path: Path) -> None:
    store, _, _ = two(tmp_path)
    store.set_trust(sign_trust(store.trust.with_threshold(DEPOSITOR, 1), [a.key_of("alice")]))
    digest = sha256((store.root / "trust.json").read_bytes())
    for damage in (os.unlink, flip):
        damage(store.objects.stored_path(digest))
        findings, repaired, _ = look(store, repair=True)
        assert findings and (digest, "fetched from trust.json") in {
            (item.object, item.action) for item in repaired
        }
        assert look(store)[0] == []


@pytest.mark.parametrize("kind", ["file", "link", "dangling"])
def test_what_lies_in_the_place_of_lost_found_keeps_no_repair_back(
    tmp_path: Path, kind: str
) -> None:
    store, one, _ = two(tmp_path)
    outside, place = tmp_path / "outside", store.root / "lost-found"
    outside.mkdir()
    if kind == "file":
        place.write_text("x")
    else:
        place.symlink_to(outside if kind == "link" else tmp_path / "nowhere")
    page = one.manifest.pages[0].digest
    flip(store.objects.stored_path(page))
    _, repaired, _ = look(store, repair=True)
    assert ("lost-found", "lost-found/lost-found.0") in {(r.object, r.moved_to) for r in repaired}
    assert (place / f"{hex_of(page)}.0").is_file() and not place.is_symlink()
    assert list(outside.iterdir()) == []
    assert [f.object for f in look(store)[0]] == [page]
