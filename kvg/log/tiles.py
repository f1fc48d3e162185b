"""Tiles: a log's hashes and entries as static files (https://c2sp.org/tlog-tiles).

Everything read through ``Tiles`` is authenticated against the root it was made with: the right
edge of the tree gives the root, every full tile gives its hash in the tile above, every entry
its leaf hash. So a caller that believes the checkpoint can believe what it reads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from kvg import durable
from kvg.errors import Corrupt, UsageError
from kvg.log import merkle
from kvg.log.merkle import HASH_SIZE

if TYPE_CHECKING:
    from io import FileIO

HEIGHT: Final = 8
WIDTH: Final = 1 << HEIGHT
MAX_BUNDLE_SIZE: Final = WIDTH * (2 + 0xFFFF)
LENGTH_SIZE: Final = 2
_MAX_CACHED = 64
_MAX_BUNDLES = 16
_MAX_KEPT_BYTES = 256 << 10
"""Bundles of larger entries than is usual are not kept: a log may be a stranger's."""
_MAX_WHOLE_BYTES = 32 << 20
"""Of all bundles together, as much is kept once the whole log was gone through."""
_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class TileSource(Protocol):
    """Where a log's static files are read from."""

    def read(self, name: str, limit: int) -> bytes | None:
        """The bytes of ``name``, at most ``limit`` + 1 of them; None when there is no such file."""

    def widths(self, name: str) -> Sequence[int]:
        """The widths of the partial tiles of ``name`` that are there, ascending; maybe none."""


class FolderSource:
    """A log in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._prefix = f"{folder}{os.sep}"

    def read(self, name: str, limit: int) -> bytes | None:
        path = self._prefix + name
        try:
            with open(path, "rb", buffering=0, opener=durable.plain) as file:
                return _read_up_to(file, limit + 1)
        except _ABSENT:
            return None
        except OSError as error:
            durable.raise_translated(error, path)

    def widths(self, name: str) -> Sequence[int]:
        path = self.folder / f"{name}.p"
        with durable.translated(path):
            try:
                found = os.listdir(path)
            except _ABSENT:
                return ()
        return sorted(int(text) for text in found if _is_width(text))

    def __repr__(self) -> str:
        return str(self.folder)


def _read_up_to(file: FileIO, size: int) -> bytes:
    found = file.read(size)
    while 0 < len(found) < size and (more := file.read(size - len(found))):
        found += more
    return found


def tile_name(level: int, index: int) -> str:
    """The name of hash tile ``index`` of ``level``, as if it were full."""
    return f"tile/{level}/{_index_path(index)}"


def bundle_name(index: int) -> str:
    """The name of entry bundle ``index``, as if it were full."""
    return f"tile/entries/{_index_path(index)}"


def file_name(name: str, width: int) -> str:
    """The name of the tile or bundle ``name`` at ``width``."""
    return name if width == WIDTH else f"{name}.p/{width}"


def width_of(level: int, index: int, size: int) -> int:
    """How many hashes tile ``index`` of ``level`` has in a tree of ``size``."""
    return max(0, min(WIDTH, (size >> (HEIGHT * level)) - index * WIDTH))


def encode_bundle(entries: Sequence[bytes]) -> bytes:
    """The bundle of ``entries``: a big-endian length of 2 bytes before each."""
    parts: list[bytes] = []
    for entry in entries:
        if len(entry) > 0xFFFF:
            raise UsageError(f"log entry of {len(entry)} bytes: at most 65535")
        parts += len(entry).to_bytes(LENGTH_SIZE, "big"), entry
    return b"".join(parts)


def parse_bundle(data: bytes, *, what: str) -> list[bytes]:
    """The entries of a bundle. Raises ``Corrupt`` naming ``what``."""
    entries: list[bytes] = []
    position = 0
    while position < len(data):
        start = position + LENGTH_SIZE
        position = start + int.from_bytes(data[position:start], "big")
        if start > len(data) or position > len(data) or len(entries) == WIDTH:
            raise Corrupt(f"{what}: malformed entry bundle", hint="kvg fsck")
        entries.append(data[start:position])
    return entries


def tile_root(hashes: bytes) -> bytes:
    """The root over a full tile, or over any power of two of hashes."""
    nodes = split_hashes(hashes)
    while len(nodes) > 1:
        nodes = merkle.node_hashes(nodes)
    return nodes[0]


def edge_root(edge: Sequence[bytes]) -> bytes:
    """The root of the tree whose partial tiles, by level from 0, are ``edge`` (b"" where none)."""
    roots: list[bytes] = []
    for hashes in reversed(edge):
        position, width = 0, len(hashes) // HASH_SIZE
        while position < width:
            count = 1 << ((width - position).bit_length() - 1)
            stop = position + count
            roots.append(tile_root(hashes[position * HASH_SIZE : stop * HASH_SIZE]))
            position = stop
    return merkle.fold(roots)


def split_hashes(data: bytes) -> list[bytes]:
    """The hashes of a tile."""
    return [data[i : i + HASH_SIZE] for i in range(0, len(data), HASH_SIZE)]


class Tiles:
    """The tiles and entries of the tree (``size``, ``root``), read from ``source``.

    Raises ``Corrupt`` naming the file wherever bytes do not lead to the root. Holds a few tiles
    in memory, however large the log.
    """

    def __init__(self, source: TileSource, size: int, root: bytes) -> None:
        self.source = source
        self.size = size
        self.root = root
        self._edge: tuple[bytes, ...] | None = None
        self._cached: dict[tuple[int, int], bytes] = {}
        self._bundles: dict[int, tuple[bytes, ...]] = {}
        self._whole: dict[int, bytes] = {}
        self._whole_bytes = 0

    def edge(self) -> tuple[bytes, ...]:
        """The partial tiles of the right edge, by level from 0; b"" at a level without one."""
        if self._edge is None:
            self._edge = self._read_edge()
        return self._edge

    def tile(self, level: int, index: int) -> bytes:
        """The hashes of tile ``index`` of ``level``, as many as this tree has."""
        width = width_of(level, index, self.size)
        if 0 < width < WIDTH:
            return self.edge()[level]
        found = self._cached.get((level, index))
        if found is None:
            found = self._read_full(level, index)
            if len(self._cached) >= _MAX_CACHED:
                del self._cached[next(iter(self._cached))]
            self._cached[level, index] = found
        return found

    def subtree(self, start: int, height: int) -> bytes:
        """The hash of the complete subtree of 2^``height`` leaves at leaf ``start``."""
        level = height // HEIGHT
        count = 1 << (height - HEIGHT * level)
        index, position = divmod(start >> (HEIGHT * level), WIDTH)
        hashes = self.tile(level, index)[position * HASH_SIZE : (position + count) * HASH_SIZE]
        return tile_root(hashes)

    def root_at(self, size: int) -> bytes:
        """The root that this log had at ``size``, which is not past its own."""
        return merkle.range_hash(0, size, self.subtree)

    def leaf(self, index: int) -> bytes:
        """The leaf hash of entry ``index``."""
        return self.subtree(index, 0)

    def entries(self, start: int, stop: int) -> Iterator[bytes]:
        """Entries [``start``, ``stop``), each checked against its leaf hash."""
        while start < stop:
            bundle = start // WIDTH
            last = min(stop, (bundle + 1) * WIDTH)
            yield from self.bundle(bundle)[start - bundle * WIDTH : last - bundle * WIDTH]
            start = last

    def bundle(self, index: int) -> tuple[bytes, ...]:
        """The entries of bundle ``index``, as many as this tree has, each checked."""
        found = self._bundles.get(index)
        if found is None:
            found = self._read_bundle(index)
            if sum(map(len, found)) > _MAX_KEPT_BYTES:
                return found
            if len(self._bundles) >= _MAX_BUNDLES:
                del self._bundles[next(iter(self._bundles))]
            self._bundles[index] = found
        return found

    def naming(self, needles: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
        """Each entry in which one of ``needles`` stands, with its number; all were checked once."""
        for index in range(-(-self.size // WIDTH)):
            data = self._whole.get(index)
            if data is None:
                data = encode_bundle(self._read_bundle(index))
                if self._whole_bytes < _MAX_WHOLE_BYTES:
                    self._whole[index] = data
                    self._whole_bytes += len(data)
            if not any(needle in data for needle in needles):
                continue
            for number, entry in enumerate(parse_bundle(data, what=bundle_name(index))):
                if any(needle in entry for needle in needles):
                    yield index * WIDTH + number, entry

    def _read_bundle(self, index: int) -> tuple[bytes, ...]:
        leaves = split_hashes(self.tile(0, index))
        name, data = self._read(bundle_name(index), len(leaves), MAX_BUNDLE_SIZE)
        entries = parse_bundle(data, what=self._what(name))
        if len(entries) < len(leaves):
            raise Corrupt(f"{self._what(name)}: {len(entries)} entries", hint="kvg fsck")
        entries = entries[: len(leaves)]
        hashes = merkle.leaf_hashes(entries)
        for offset, leaf in enumerate(leaves):
            if hashes[offset] != leaf:
                number = index * WIDTH + offset
                raise Corrupt(
                    f"{self._what(name)}: entry {number} does not match its leaf", hint="kvg fsck"
                )
        return tuple(entries)

    def partial_faults(self, level: int, index: int) -> Iterator[Corrupt]:
        """What is wrong with the partial tiles of a name, which older readers need."""
        try:
            hashes = self.tile(level, index)
        except Corrupt as error:
            yield error
            return
        name = tile_name(level, index)
        for width in self.source.widths(name):
            wanted = hashes[: width * HASH_SIZE]
            if len(wanted) == width * HASH_SIZE:
                yield from self._differs(file_name(name, width), wanted)

    def partial_bundle_faults(self, index: int, entries: Sequence[bytes]) -> Iterator[Corrupt]:
        """As ``partial_faults``, for the bundle ``index`` that holds ``entries``."""
        name = bundle_name(index)
        for width in self.source.widths(name):
            if width <= len(entries):
                yield from self._differs(file_name(name, width), encode_bundle(entries[:width]))

    def _differs(self, name: str, wanted: bytes) -> Iterator[Corrupt]:
        found = self.source.read(name, len(wanted))
        if found is not None and found != wanted:
            yield Corrupt(f"{self._what(name)}: not what it was", hint="kvg fsck")

    def _read_edge(self) -> tuple[bytes, ...]:
        edge: list[bytes] = []
        names: list[str] = []
        count, level = self.size, 0
        while count:
            index, width = divmod(count, WIDTH)
            name, data = self._read_hashes(level, index, width) if width else ("", b"")
            edge.append(data)
            names += [name] if name else []
            count, level = index, level + 1
        if edge_root(edge) != self.root:
            told = ", ".join(names) or "checkpoint"
            raise Corrupt(
                f"{self._what(told)}: not the tree of the checkpoint of size {self.size}",
                hint="kvg fsck",
            )
        return tuple(edge)

    def _read_full(self, level: int, index: int) -> bytes:
        parent, position = divmod(index, WIDTH)
        wanted = split_hashes(self.tile(level + 1, parent))[position]
        name, data = self._read_hashes(level, index, WIDTH)
        if tile_root(data) != wanted:
            raise Corrupt(f"{self._what(name)}: does not match the tile above", hint="kvg fsck")
        return data

    def _read_hashes(self, level: int, index: int, width: int) -> tuple[str, bytes]:
        name, data = self._read(tile_name(level, index), width, WIDTH * HASH_SIZE)
        if len(data) % HASH_SIZE or len(data) < width * HASH_SIZE:
            raise Corrupt(f"{self._what(name)}: {len(data)} bytes", hint="kvg fsck")
        return name, data[: width * HASH_SIZE]

    def _read(self, name: str, width: int, limit: int) -> tuple[str, bytes]:
        """The file that holds at least the first ``width`` of ``name``, and what it is called.

        A partial tile gives way to a wider or the full one while a writer tidies up, so the
        search is made again before it is given up.
        """
        for _ in range(3):
            for candidate in self._candidates(name, width):
                data = self.source.read(candidate, limit)
                if data is not None and len(data) > limit:
                    raise Corrupt(f"{self._what(candidate)}: too large", hint="kvg fsck")
                if data is not None:
                    return candidate, data
        raise Corrupt(f"{self._what(file_name(name, width))}: missing", hint="kvg fsck")

    def _candidates(self, name: str, width: int) -> Iterator[str]:
        yield file_name(name, width)
        if width < WIDTH:
            yield name
            for wider in self.source.widths(name):
                if wider > width:
                    yield file_name(name, wider)

    def _what(self, name: str) -> str:
        return f"log {self.source}: {name}"


def _index_path(index: int) -> str:
    path = f"{index % 1000:03d}"
    while index >= 1000:
        index //= 1000
        path = f"x{index % 1000:03d}/{path}"
    return path


def _is_width(text: str) -> bool:
    return text.isascii() and text.isdigit() and text[0] != "0" and int(text) < WIDTH
