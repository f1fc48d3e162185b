"""The files of a log that a reader of an older checkpoint lacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvg.log.tiles import HEIGHT, WIDTH, bundle_name, encode_bundle, file_name, tile_name, width_of

if TYPE_CHECKING:
    from kvg.log.tiles import Tiles


def log_files(tiles: Tiles, old_size: int) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of every bundle and tile of the tree that one of ``old_size`` did not have.

    All of it authenticated. With the checkpoint written last, a reader always finds what it needs.
    Raises ``Corrupt`` naming the file that is damaged or missing.
    """
    size = tiles.size
    if size == old_size:
        return
    for index in range(old_size // WIDTH, -(-size // WIDTH)):
        entries = tiles.bundle(index)
        yield file_name(bundle_name(index), len(entries)), encode_bundle(entries)
    level = 0
    while size >> (HEIGHT * level):
        first = (old_size >> (HEIGHT * level)) // WIDTH
        for index in range(first, -(-(size >> (HEIGHT * level)) // WIDTH)):
            width = width_of(level, index, size)
            yield file_name(tile_name(level, index), width), tiles.tile(level, index)
        level += 1
