from __future__ import annotations

import os
from pathlib import Path

import pytest

from kvg import codec as kvz
from kvg import durable
from kvg.digest import Digest, sha256, shake256
from kvg.errors import Corrupt, NoSpace, NotFound, UsageError
from kvg.locking import Lock
from kvg.store.objects import ObjectFolder

RAW = shake256(b"object", 100_000)


def folder(tmp_path: Path, codec: int = 0) -> ObjectFolder:
    (tmp_path / "tmp").mkdir(parents=True, exist_ok=True)
    return ObjectFolder(
        tmp_path / "objects",
        staging=tmp_path / "tmp",
        lock=Lock(tmp_path / "lock", wait_s=0),
        codec=lambda: codec,
    )


def spoil(path: Path, data: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(data)
    path.chmod(0o444)


@pytest.mark.parametrize("codec", [0, 1, 2])
@pytest.mark.parametrize("size", [0, 1, 4096, 100_000])
def test_put_and_read(tmp_path: Path, codec: int, size: int) -> None:
    objects = folder(tmp_path, codec)
    raw = RAW[:size]
    result = objects.put(raw, element=2)
    assert result.new and result.digest == sha256(raw)
    assert result.stored_size == objects.stored_size(result.digest)
    assert objects.read(result.digest, size=size, what="it") == raw
    assert objects.read(result.digest, what="it", check_digest=False) == raw
    assert list(objects.all()) == [result.digest]
    assert os.listdir(tmp_path / "tmp") == []


def test_parts_are_one_object(tmp_path: Path) -> None:
    objects = folder(tmp_path)
    assert objects.put([b"a", memoryview(b"b"), bytearray(b"c")]).digest == sha256(b"abc")


def test_the_data_region_is_aligned(tmp_path: Path) -> None:
    objects = folder(tmp_path)
    digest = objects.put(RAW, data_start=776).digest
    assert objects.stored_path(digest).read_bytes().index(RAW[776:900]) % 4096 == 0


def test_what_is_there_is_not_written_again(tmp_path: Path) -> None:
    objects = folder(tmp_path)
    digest = objects.put(RAW).digest
    before = objects.stored_path(digest).stat()
    same = (before.st_ino, before.st_mtime_ns)
    assert not objects.put(RAW).new
    assert not folder(tmp_path, 2).put(RAW).new
    after = objects.stored_path(digest).stat()
    assert (after.st_ino, after.st_mtime_ns) == same
    assert before.st_mode & 0o777 == 0o444


@pytest.mark.parametrize("kept", [0, 10, 64, 4096, 99_999])
def test_field_s15_a_short_object_is_replaced_by_the_next_put(tmp_path: Path, kept: int) -> None:
    objects = folder(tmp_path)
    digest = objects.put(RAW).digest
    path = objects.stored_path(digest)
    spoil(path, path.read_bytes()[:kept])
    with pytest.raises(Corrupt, match="it: object sha256:"):
        objects.read(digest, what="it")
    assert objects.put(RAW).new
    assert objects.read(digest, what="it") == RAW


def test_field_s07_presence_is_not_trusted(tmp_path: Path) -> None:
    objects = folder(tmp_path)
    digest = objects.put(RAW).digest
    path = objects.stored_path(digest)
    stored = bytearray(path.read_bytes())
    stored[-1] ^= 1
    spoil(path, bytes(stored))
    with pytest.raises(Corrupt):
        objects.read(digest, what="it")
    assert objects.put(RAW).new
    assert objects.read(digest, what="it") == RAW


def test_a_missing_object_is_corrupt_and_named(tmp_path: Path) -> None:
    objects = folder(tmp_path)
    with pytest.raises(Corrupt, match=r"page 3: object sha256:[0-9a-f]{6} missing"):
        objects.read(sha256(RAW), what="page 3")


def test_another_object_under_the_name_is_refused(tmp_path: Path) -> None:
    objects = folder(tmp_path)
    one, two = objects.put(b"one").digest, objects.put(b"two").digest
    spoil(objects.stored_path(one), objects.stored_path(two).read_bytes())
    with pytest.raises(Corrupt):
        objects.read(one, what="it")
    with pytest.raises(Corrupt):
        objects.read(one, what="it", check_digest=False)


def test_field_s23_a_link_is_refused(tmp_path: Path) -> None:
    objects = folder(tmp_path)
    digest = objects.put(RAW).digest
    path = objects.stored_path(digest)
    os.rename(path, tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Corrupt, match="a link"):
        objects.read(digest, what="it")


def test_size_is_bounded_before_reading(tmp_path: Path) -> None:
    objects = folder(tmp_path)
    digest = objects.put(RAW).digest
    with pytest.raises(Corrupt):
        objects.read(digest, size=10, what="it")
    with pytest.raises(Corrupt):
        objects.read(digest, limit=10, what="it")
    spoil(objects.stored_path(digest), bytes(200_000))
    with pytest.raises(Corrupt, match="too large"):
        objects.read(digest, size=100, what="it")


def test_a_received_object_is_checked_before_it_is_there(tmp_path: Path) -> None:
    source, target = folder(tmp_path / "a"), folder(tmp_path / "b")
    digest = source.put(RAW, codec=1).digest
    stored = source.read_stored(digest, what="it")
    bad = bytearray(stored)
    bad[-1] ^= 1
    with pytest.raises(Corrupt, match="from afar"):
        target.put_stored(bytes(bad), digest=digest, what="from afar")
    with pytest.raises(Corrupt):
        target.put_stored(stored, digest=sha256(b"x"), what="from afar")
    assert not target.has(digest)
    assert target.put_stored(stored, digest=digest, size=len(RAW), what="from afar").new
    assert not target.put_stored(stored, digest=digest, what="from afar").new
    assert target.read_stored(digest, what="it") == stored


def test_resolve(tmp_path: Path) -> None:
    objects = folder(tmp_path)
    digest = objects.put(RAW).digest
    digits = digest[7:]
    assert objects.resolve(digits[:6]) == digest
    assert objects.resolve(digest) == digest
    with pytest.raises(NotFound):
        objects.resolve("000000" if not digits.startswith("000000") else "111111")
    with pytest.raises(UsageError):
        objects.resolve(digits[:5])
    twin = Digest(digest[:-1] + ("0" if digest[-1] != "0" else "1"))
    objects.stored_path(twin).write_bytes(b"")
    with pytest.raises(UsageError, match="stands for 2"):
        objects.resolve(digits[:10])
    assert objects.resolve(digest) == digest


def test_names_that_are_no_objects_are_passed_over(tmp_path: Path) -> None:
    objects = folder(tmp_path)
    digest = objects.put(RAW).digest
    (objects.folder / "README").write_text("x", encoding="utf-8")
    (objects.folder / "zz").mkdir()
    (objects.folder / digest[7:9] / "short").write_text("x", encoding="utf-8")
    assert list(objects.all()) == [digest]


def test_remove(tmp_path: Path) -> None:
    objects = folder(tmp_path)
    result = objects.put(RAW)
    assert objects.remove(result.digest) == result.stored_size
    assert objects.remove(result.digest) == 0
    assert not objects.has(result.digest)


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    objects = folder(tmp_path)

    def full(name: str, _path: str) -> None:
        if name == "write":
            raise OSError(28, "No space left on device")

    durable.set_hook(full)
    try:
        with pytest.raises(NoSpace):
            objects.put(RAW)
    finally:
        durable.set_hook(None)
    assert list(objects.all()) == []
    assert os.listdir(tmp_path / "tmp") == []
    assert objects.put(RAW).new


def test_field_s15_a_name_comes_after_its_bytes_and_both_are_durable(tmp_path: Path) -> None:
    objects, steps = folder(tmp_path), []
    objects.put(b"the folders are made by the first")
    raw = next(raw for raw in (b"%d" % i for i in range(9000)) if is_beside(objects, raw))
    durable.set_hook(lambda name, path: steps.append((name, Path(path).parent.name)))
    try:
        digest = objects.put(raw).digest
    finally:
        durable.set_hook(None)
    names = [name for name, _ in steps]
    assert names.index("create") < names.index("write") < names.index("fsync")
    assert names[-3:] == ["fsync", "rename", "fsync"]  # the file, its name, the folder of the name
    assert steps[-1][1] == "objects" and steps[-2][1] == digest[7:9]
    assert objects.stored_size(digest) > len(raw)


def is_beside(objects: ObjectFolder, raw: bytes) -> bool:
    """Whether ``raw`` would lie in a folder that is there already."""
    path = objects.stored_path(sha256(raw))
    return path.parent.is_dir() and not path.exists()


@pytest.mark.parametrize("codec", [0, 1, 2])
def test_what_was_received_is_kept_as_it_stands_where_a_put_gives_that(
    tmp_path: Path, codec: int
) -> None:
    objects = folder(tmp_path, codec)
    for sent in (0, 1, 2):
        digest = sha256(RAW)
        made = kvz.encode(
            RAW, digest=digest, codec=sent, planes=2 if sent == 2 else 1,
            data_start=776 if sent == 0 else 0,
        )  # fmt: skip
        stored = b"".join(made.parts())
        objects.put_received(memoryview(RAW), stored, digest=digest, data_start=776, element=2)
        there = objects.stored_path(digest).read_bytes()
        assert (there == stored) == (sent == codec)
        assert kvz.parse_header(there, what="it").codec == codec
        assert objects.read(digest, what="it") == RAW
        objects.stored_path(digest).unlink()


def test_what_was_received_misplaced_is_placed(tmp_path: Path) -> None:
    objects = folder(tmp_path)
    digest = sha256(RAW)
    stored = b"".join(kvz.encode(RAW, digest=digest, codec=0, data_start=0).parts())
    objects.put_received(memoryview(RAW), stored, digest=digest, data_start=776, element=2)
    there = objects.stored_path(digest).read_bytes()
    assert there != stored and there.index(RAW[776:900]) % 4096 == 0


def test_what_is_adopted_has_its_names_for_good_in_one_wait_a_folder(tmp_path: Path) -> None:
    objects, other = folder(tmp_path), folder(tmp_path / "other")
    digests = [other.put(RAW[n:]).digest for n in range(300)]
    steps: list[tuple[str, str]] = []
    durable.set_hook(lambda name, path: steps.append((name, path)))
    try:
        objects.adopt(other, digests)
    finally:
        durable.set_hook(None)
    assert set(objects.all()) == set(digests) and not list(other.all())
    synced = [path for name, path in steps if name == "fsync"]
    folders = {str(objects.stored_path(digest).parent) for digest in digests}
    assert {*folders, str(objects.folder)} <= set(synced) and len(synced) == len(set(synced))
    last_rename = max(n for n, (name, _) in enumerate(steps) if name == "rename")
    assert all(n > last_rename for n, (name, _) in enumerate(steps) if name == "fsync")
