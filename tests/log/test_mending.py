"""A log's tiles and entries made anew, from the rest of the log or from copies that may lie."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from kvg.log.log import Log
from kvg.log.mending import Copy, leads_to, mended_files
from kvg.log.tiles import FolderSource
from kvg.signing.keys import PrivateKey

SIZES = (1, 3, 255, 256, 257, 600)


def grown(log: Log, key: PrivateKey, size: int) -> Log:
    for start in range(0, size, 100):
        log.append([b"entry %d" % i for i in range(start, min(size, start + 100))], key)
    return log


def files_of(log: Log) -> list[str]:
    top = log.folder / "tile"
    return [str(path.relative_to(log.folder)) for path in sorted(top.rglob("*")) if path.is_file()]


def spoil(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    path.chmod(0o644)
    if how == "gone":
        path.unlink()
    elif how == "cut":
        path.write_bytes(data[:-1])
    else:
        data[random.Random(len(data)).randrange(len(data))] ^= 4
        path.write_bytes(data)


def mend(log: Log, copies: Sequence[Copy] = ()) -> list[str]:
    """Put every file right that can be; the names of those that can't."""
    lost = []
    for item in mended_files(log.source, log.size, log.root, lambda: copies):
        path = log.folder / item.name
        if item.data is None:
            lost.append(item.name)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_bytes(item.data)
    return lost


def is_sound(log: Log, staging: Path) -> bool:
    return not [*Log.open(log.folder, staging=staging).faults()]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("how", ["flip", "cut", "gone"])
def test_every_hash_tile_comes_back_from_the_entries(
    log: Log, key: PrivateKey, staging: Path, size: int, how: str
) -> None:
    grown(log, key, size)
    assert mend(log) == []
    whole = {name: (log.folder / name).read_bytes() for name in files_of(log)}
    tiles = [name for name in whole if "entries" not in name]
    for name in tiles:
        spoil(log.folder / name, how)
        assert mend(log) == [] and is_sound(log, staging), name
    for name in tiles:
        if (log.folder / name).exists():  # one for older readers that is gone stays so
            spoil(log.folder / name, how)
    assert mend(log) == [] and is_sound(log, staging)
    assert how == "gone" or {n: (log.folder / n).read_bytes() for n in files_of(log)} == whole


@pytest.mark.parametrize("how", ["flip", "cut", "gone"])
def test_every_file_comes_back_from_a_copy(
    log: Log, key: PrivateKey, staging: Path, tmp_path: Path, how: str
) -> None:
    """The copy holds two thirds of the log's own size: what came after is here alone."""
    grown(log, key, 400)
    shutil.copytree(log.folder, tmp_path / "copy")
    copy = Copy(FolderSource(tmp_path / "copy"), 400)
    grown_to = [b"later %d" % i for i in range(200)]
    log.append(grown_to, key)
    for name in files_of(log):
        path = log.folder / name
        if not (tmp_path / "copy" / name).exists():
            continue
        spoil(path, how)
        assert mend(log, [copy]) == [] and is_sound(log, staging), name


def test_a_copy_that_lies_is_not_believed(
    log: Log, key: PrivateKey, other_key: PrivateKey, staging: Path, tmp_path: Path
) -> None:
    grown(log, key, 300)
    other = Log.create(tmp_path / "other", origin=log.origin, key=other_key, staging=staging)
    other.append([b"lie %d" % i for i in range(300)], other_key)
    liar = Copy(other.source, 300)
    for name in ("tile/0/000", "tile/entries/000"):
        spoil(log.folder / name, "gone")
    assert set(mend(log, [liar])) == {"tile/0/000", "tile/entries/000"}
    assert not leads_to(log.source, other.size, other.root, lambda: ())
    assert leads_to(log.source, other.size, other.root, lambda: [liar])


def test_what_nothing_has_is_told_by_entry_and_the_rest_stays(
    log: Log, key: PrivateKey, staging: Path
) -> None:
    grown(log, key, 300)
    path = log.folder / "tile/entries/000"
    data = path.read_bytes()
    at = data.index(b"entry 77")
    spoil(path, "gone")
    path.write_bytes(data[:at] + b"ENTRY 77" + data[at + 8 :])
    (lost,) = mended_files(log.source, log.size, log.root, lambda: ())
    assert (lost.name, lost.data, lost.first, lost.last) == ("tile/entries/000", None, 77, 77)


def test_copies_are_not_asked_where_the_log_does(log: Log, key: PrivateKey) -> None:
    grown(log, key, 300)
    spoil(log.folder / "tile/0/000", "flip")

    def asked() -> Sequence[Copy]:
        raise AssertionError("the entries are here")

    assert [item.name for item in mended_files(log.source, log.size, log.root, asked)] == [
        "tile/0/000"
    ]


def test_a_link_or_a_folder_in_the_place_of_a_file(log: Log, key: PrivateKey) -> None:
    grown(log, key, 300)
    path = log.folder / "tile/0/000"
    path.unlink()
    os.mkdir(path)
    (item,) = mended_files(log.source, log.size, log.root, lambda: ())
    assert item.name == "tile/0/000" and item.data is not None


def test_a_copy_can_not_keep_one_busy(log: Log, key: PrivateKey) -> None:
    """One that has every width of every tile, each with other bytes; it is told of no size."""
    grown(log, key, 600)
    for name in files_of(log):
        spoil(log.folder / name, "gone")

    class Busy:
        n_read = 0

        def read(self, name: str, limit: int) -> bytes | None:
            self.n_read += 1
            return name.encode().ljust(limit, b"x")

        def widths(self, name: str) -> Sequence[int]:
            return range(1, 256)

    busy = Busy()
    assert not leads_to(log.source, log.size, log.root, lambda: [Copy(busy, 600)])
    assert busy.n_read < 100
