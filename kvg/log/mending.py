"""A log's files made anew from what else says the same: its own entries, its partial tiles, copies.

Nothing that is found is believed before it leads to the root of the checkpoint: a tile by the one
above it, an entry by its leaf hash. So a copy may come from anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import islice, product
from typing import TYPE_CHECKING

from kvg.errors import KvgError
from kvg.frozen import frozen
from kvg.log.merkle import HASH_SIZE, leaf_hash
from kvg.log.tiles import (
    HEIGHT,
    LENGTH_SIZE,
    MAX_BUNDLE_SIZE,
    WIDTH,
    bundle_name,
    edge_root,
    encode_bundle,
    file_name,
    split_hashes,
    tile_name,
    tile_root,
    width_of,
)

if TYPE_CHECKING:
    from kvg.log.tiles import TileSource


MOST_CHOICES = 4
"""Of a kind of source, how many forms of a tile are tried: a copy may be made to keep one busy."""


@frozen
class Copy:
    """A copy of the log, up to ``size``: it may be damaged, or another log altogether."""

    source: TileSource
    size: int


Copies = Callable[[], Sequence[Copy]]
"""Gives what copies there are; asked only where the log's own files do not do."""


@frozen
class Mended:
    """A file of the log that is not what it has to be, and what that is; None where it is lost.

    ``first`` and ``last`` are the entries of a lost bundle that nothing at hand has.
    """

    name: str
    data: bytes | None
    first: int = 0
    last: int = -1


def mended_files(own: TileSource, size: int, root: bytes, copies: Copies) -> Iterator[Mended]:
    """Every bundle and tile in ``own`` that is damaged or missing, and what belongs in its place.

    Nothing is written. Holds a few bundles in memory.
    """
    whole = _Whole(own, size, root, copies)
    for index in range(-(-size // WIDTH)):
        yield from whole.bundle_faults(index)
    level = 0
    while count := size >> (HEIGHT * level):
        for index in range(-(-count // WIDTH)):
            yield from whole.tile_faults(level, index)
        level += 1


def leads_to(own: TileSource, size: int, root: bytes, copies: Copies) -> bool:
    """Whether what is at hand leads to the tree of this ``size`` and ``root``."""
    return _Whole(own, size, root, copies).edge is not None


class _Whole:
    """The log as its root says it was, from whatever source has each part of it."""

    def __init__(self, own: TileSource, size: int, root: bytes, copies: Copies) -> None:
        self._size = size
        self._root = root
        self._own = Copy(own, size)
        self._copies = copies
        self.tile = lru_cache(maxsize=64)(self._tile)

    def bundle_faults(self, index: int) -> Iterator[Mended]:
        width = width_of(0, index, self._size)
        name, hashes = bundle_name(index), self.tile(0, index)
        entries = self._entries(index, split_hashes(hashes or bytes(width * HASH_SIZE)))
        known = next((i for i, entry in enumerate(entries) if entry is None), width)
        if known < width:
            lost = [index * WIDTH + i for i, entry in enumerate(entries) if entry is None]
            yield Mended(file_name(name, width), None, lost[0], lost[-1])
        for kept in (*self._older(name, width), width):
            if kept <= known:
                wanted = encode_bundle([entry for entry in entries[:kept] if entry is not None])
                yield from self._unless_it_is(file_name(name, kept), wanted)

    def tile_faults(self, level: int, index: int) -> Iterator[Mended]:
        width = width_of(level, index, self._size)
        name, hashes = tile_name(level, index), self.tile(level, index)
        if hashes is None:
            yield Mended(file_name(name, width), None)
            return
        for kept in (*self._older(name, width), width):
            yield from self._unless_it_is(file_name(name, kept), hashes[: kept * HASH_SIZE])

    def _older(self, name: str, width: int) -> Iterator[int]:
        return (kept for kept in _widths(self._own.source, name) if kept < width)

    def _unless_it_is(self, name: str, wanted: bytes) -> Iterator[Mended]:
        if read_if_had(self._own.source, name, len(wanted)) != wanted:
            yield Mended(name, wanted)

    def _tile(self, level: int, index: int) -> bytes | None:
        """The hashes of a tile, proved by the root; None where nothing at hand has them."""
        width = width_of(level, index, self._size)
        if width < WIDTH:
            return None if self.edge is None else self.edge[level]
        above = self.tile(level + 1, index // WIDTH)
        if above is None:
            return None
        wanted = split_hashes(above)[index % WIDTH]
        found = (data for kind in self._hashes(level, index, width) for data in kind)
        return next((data for data in found if tile_root(data) == wanted), None)

    @cached_property
    def edge(self) -> tuple[bytes, ...] | None:
        """The partial tiles that together give the root: what is near goes first."""
        choices: list[dict[bytes, None]] = []
        kinds: list[Iterator[Iterator[bytes]]] = []
        count, level = self._size, 0
        while count:
            index, width = divmod(count, WIDTH)
            choices.append({} if width else {b"": None})
            kinds.append(self._hashes(level, index, width) if width else iter(()))
            count, level = index, level + 1
        while True:
            more = [next(kind, None) for kind in kinds]
            for known, found in zip(choices, more, strict=True):
                known.update(dict.fromkeys(islice(found or (), MOST_CHOICES)))
            for edge in product(*choices):
                if edge_root(edge) == self._root:
                    return edge
            if all(found is None for found in more):
                return None

    def _hashes(self, level: int, index: int, width: int) -> Iterator[Iterator[bytes]]:
        """What may be the tile, by kind: the log's own files, made from its entries, copies."""
        yield self._read_hashes(self._own, level, index, width)
        yield self._from_below(level, index, width)
        yield (
            data for copy in self._copies() for data in self._read_hashes(copy, level, index, width)
        )

    def _read_hashes(self, copy: Copy, level: int, index: int, width: int) -> Iterator[bytes]:
        at = width_of(level, index, copy.size)
        for data in _read_all(copy.source, tile_name(level, index), at, WIDTH * HASH_SIZE):
            if len(data) >= width * HASH_SIZE:
                yield data[: width * HASH_SIZE]

    def _from_below(self, level: int, index: int, width: int) -> Iterator[bytes]:
        """The tile made from the log's own entries, or from its own tiles of the level below."""
        if level == 0:
            for entries in self._read_bundles(self._own, index):
                if len(entries) >= width:
                    yield b"".join(map(leaf_hash, entries[:width]))
            return
        for first in (self._from_entries, self._from_tile):
            below = [first(level - 1, index * WIDTH + place) for place in range(width)]
            roots = [tile_root(data) for data in below if data is not None]
            if len(roots) == width:
                yield b"".join(roots)

    def _from_entries(self, level: int, index: int) -> bytes | None:
        return next(self._from_below(level, index, WIDTH), None)

    def _from_tile(self, level: int, index: int) -> bytes | None:
        return next(self._read_hashes(self._own, level, index, WIDTH), None)

    def _entries(self, index: int, leaves: Sequence[bytes]) -> list[bytes | None]:
        """The entries with these leaf hashes, None for each that nothing at hand has."""
        found: list[bytes | None] = [None] * len(leaves)
        for copy in self._all():
            for entries in self._read_bundles(copy, index):
                for place, (leaf, entry) in enumerate(zip(leaves, entries, strict=False)):
                    if found[place] is None and leaf_hash(entry) == leaf:
                        found[place] = entry
                if None not in found:
                    return found
        return found

    def _all(self) -> Iterator[Copy]:
        yield self._own
        yield from self._copies()

    def _read_bundles(self, copy: Copy, index: int) -> Iterator[list[bytes]]:
        at = width_of(0, index, copy.size)
        for data in _read_all(copy.source, bundle_name(index), at, MAX_BUNDLE_SIZE):
            yield _readable(data)


def _read_all(source: TileSource, name: str, width: int, limit: int) -> Iterator[bytes]:
    """Every file of the tile or bundle ``name`` that ``source`` has: that of ``width`` first."""
    for kept in dict.fromkeys((width, WIDTH, *reversed(_widths(source, name)))):
        data = read_if_had(source, file_name(name, kept), limit) if kept else None
        if data is not None and len(data) <= limit:
            yield data


def read_if_had(source: TileSource, name: str, limit: int) -> bytes | None:
    """As ``TileSource.read``; what can't be read is as good as not there."""
    try:
        return source.read(name, limit)
    except KvgError:
        return None


def _widths(source: TileSource, name: str) -> Sequence[int]:
    try:
        return source.widths(name)
    except KvgError:
        return ()


def _readable(data: bytes) -> list[bytes]:
    """The entries of a bundle up to where it can't be read as one."""
    entries: list[bytes] = []
    position = 0
    while len(entries) < WIDTH and position + LENGTH_SIZE <= len(data):
        start = position + LENGTH_SIZE
        position = start + int.from_bytes(data[position:start], "big")
        if position > len(data):
            break
        entries.append(data[start:position])
    return entries
