from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvg.errors import Corrupt, UsageError
from kvg.log import merkle, tiles
from kvg.log.log import Log
from kvg.signing.keys import PrivateKey


@pytest.mark.parametrize(
    ("index", "path"),
    [
        (0, "000"),
        (7, "007"),
        (999, "999"),
        (1000, "x001/000"),
        (1234067, "x001/x234/067"),
        (10**9, "x001/x000/x000/000"),
    ],
)
def test_names_are_those_of_the_specification(index: int, path: str) -> None:
    assert tiles.tile_name(3, index) == f"tile/3/{path}"
    assert tiles.bundle_name(index) == f"tile/entries/{path}"
    assert tiles.file_name(path, 17) == f"{path}.p/17"
    assert tiles.file_name(path, 256) == path


def test_widths_are_those_of_the_specifications_example() -> None:
    size = 70_000
    assert [tiles.width_of(0, n, size) for n in (0, 272, 273, 274)] == [256, 256, 112, 0]
    assert [tiles.width_of(1, n, size) for n in (0, 1, 2)] == [256, 17, 0]
    assert [tiles.width_of(2, n, size) for n in (0, 1)] == [1, 0]
    assert tiles.width_of(3, 0, size) == 0
    assert (tiles.width_of(0, 0, 256), tiles.width_of(1, 0, 256)) == (256, 1)


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_bundles_round_trip(entries: list[bytes]) -> None:
    assert tiles.parse_bundle(tiles.encode_bundle(entries), what="b") == entries


def test_lengths_are_big_endian() -> None:
    assert tiles.encode_bundle([b"ab", b"c" * 258])[:6] == b"\x00\x02ab\x01\x02"


def test_entries_of_64_kib_are_refused() -> None:
    assert len(tiles.encode_bundle([bytes(65535)])) == 65537
    with pytest.raises(UsageError):
        tiles.encode_bundle([bytes(65536)])


@given(st.binary(max_size=100))
def test_arbitrary_bundles(data: bytes) -> None:
    try:
        entries = tiles.parse_bundle(data, what="b")
    except Corrupt as error:
        assert error.message.startswith("b: ")
    else:
        assert tiles.encode_bundle(entries) == data


def test_bundles_of_more_than_a_tile_are_corrupt() -> None:
    with pytest.raises(Corrupt):
        tiles.parse_bundle(bytes(2 * 257), what="b")


class MemorySource:
    """A log's files in memory, which may be slow to catch up."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files

    def read(self, name: str, limit: int) -> bytes | None:
        data = self.files.get(name)
        return None if data is None else data[: limit + 1]

    def widths(self, name: str) -> list[int]:
        return sorted(
            int(found.removeprefix(f"{name}.p/"))
            for found in self.files
            if found.startswith(f"{name}.p/")
        )

    def __repr__(self) -> str:
        return "memory"


def _tree(size: int) -> tuple[dict[str, bytes], bytes]:
    """The files of a tree made by the definition, and its root."""
    entries = [b"%d" % i for i in range(size)]
    files: dict[str, bytes] = {}
    hashes, level = [merkle.leaf_hash(entry) for entry in entries], 0
    root = merkle.root_of(hashes)
    for start in range(0, size, 256):
        part = entries[start : start + 256]
        name = tiles.file_name(tiles.bundle_name(start // 256), len(part))
        files[name] = tiles.encode_bundle(part)
    while hashes:
        above = []
        for start in range(0, len(hashes), 256):
            part = hashes[start : start + 256]
            name = tiles.file_name(tiles.tile_name(level, start // 256), len(part))
            files[name] = b"".join(part)
            if len(part) == 256:
                above.append(merkle.root_of(part))
        hashes, level = above, level + 1
    return files, root


@pytest.mark.parametrize("size", [0, 1, 2, 255, 256, 257, 511, 512, 700, 65536, 65537, 66000])
def test_trees_are_read_and_authenticated(size: int) -> None:
    files, root = _tree(size)
    view = tiles.Tiles(MemorySource(files), size, root)
    wanted = [b"%d" % i for i in range(size)]
    assert list(view.entries(0, size)) == wanted
    leaves = [merkle.leaf_hash(entry) for entry in wanted]
    for old in {0, 1, size // 3, size // 2, size - 1, size} & set(range(size + 1)):
        assert view.root_at(old) == merkle.root_of(leaves[:old])
    assert len(view._cached) <= 64


def test_readers_of_an_old_checkpoint_use_wider_tiles() -> None:
    files, _ = _tree(300)
    _, root = _tree(270)
    view = tiles.Tiles(MemorySource(files), 270, root)
    assert list(view.entries(250, 270)) == [b"%d" % i for i in range(250, 270)]
    _, root = _tree(100)
    view = tiles.Tiles(MemorySource(files), 100, root)
    assert list(view.entries(98, 100)) == [b"98", b"99"]


@pytest.mark.parametrize("size", [1, 5, 256, 300, 600])
def test_any_missing_file_is_corrupt_and_named(size: int) -> None:
    files, root = _tree(size)
    for name in files:
        source = MemorySource({other: data for other, data in files.items() if other != name})
        with pytest.raises(Corrupt, match=f"log memory: {name}: missing"):
            list(tiles.Tiles(source, size, root).entries(0, size))


@pytest.mark.parametrize("size", [1, 5, 256, 300, 600])
def test_any_cut_or_lengthened_file_is_corrupt(size: int) -> None:
    files, root = _tree(size)
    for name, data in files.items():
        for wrong in (data[:-1], data[:-32], b"", data * 600):
            source = MemorySource({**files, name: wrong})
            with pytest.raises(Corrupt, match=r"^log memory: "):
                list(tiles.Tiles(source, size, root).entries(0, size))


def test_another_root_is_corrupt() -> None:
    files, _ = _tree(300)
    with pytest.raises(Corrupt, match="not the tree of the checkpoint"):
        list(tiles.Tiles(MemorySource(files), 300, bytes(32)).entries(0, 1))
    with pytest.raises(Corrupt, match="checkpoint"):
        tiles.Tiles(MemorySource({}), 0, bytes(32)).edge()


def test_foreign_names_in_a_tile_folder_are_no_widths(log: Log, key: PrivateKey) -> None:
    log.append([b"a"], key)
    folder = log.folder / "tile/0/000.p"
    for name in ("01", "256", "-1", "x", "\u0661", "0"):
        (folder / name).write_bytes(b"")
    assert tiles.FolderSource(log.folder).widths("tile/0/000") == [1]
    log.check()
