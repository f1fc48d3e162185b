"""Room that a store holds back, so that something can be let go on a disk that is full.

Even to remove a name the log has to grow, by a few KiB. The folder ``reserve`` holds that much in
files that mean nothing: on a full disk what only lets something go removes them, one at a time,
and takes their blocks and inodes. They are made again as far as there is room, under the exclusive
lock, whenever the log has grown or gc has run; any of them may be short or gone at any time. Their
bytes are random, so that no file system stores them in less than their size, nor a copy.

Where freed blocks stay in use, as under a snapshot, it helps nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from kvg import durable
from kvg.errors import KvgError, NoSpace
from kvg.store.layout import RESERVE

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")
PIECES = 8
PIECE_BYTES = 64 << 10


class Reserve:
    """The reserve of the store in ``root``. Change it under the store's exclusive lock only."""

    def __init__(self, root: Path) -> None:
        self.folder = root / RESERVE

    def fill(self) -> None:
        """Make what is missing of it, as far as there is room; one that can't be made is none."""
        try:
            for path in self._pieces():
                if _size(path) < PIECE_BYTES:
                    durable.hold_room(path, PIECE_BYTES)
        except KvgError:
            return

    def spend(self, work: Callable[[], T]) -> T:
        """What ``work`` gives; it is done again with more room each time that the disk is full.

        Raises what ``work`` does: ``NoSpace`` when all of the reserve is not enough.
        """
        while True:
            try:
                return work()
            except NoSpace:
                if not self._give():
                    raise

    def _give(self) -> bool:
        """Give one piece back to the file system; False when there is none."""
        for path in self._pieces():
            if _size(path) > 0:
                durable.remove(path)
                return True
        return False

    def _pieces(self) -> list[Path]:
        return [self.folder / str(number) for number in range(PIECES)]


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0
