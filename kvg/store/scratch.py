"""Room beside memory for one run: tables in a file under ``tmp`` that goes when the run ends.

The system keeps of it in memory what it likes and takes it back when it needs to. Where no file can
be made, on a full disk or in a store that can't be written to, memory has to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kvg import durable
from kvg.errors import NoSpace
from kvg.store import tables as t
from kvg.store.lmdb_file import BrokenIndex, UnwritableIndex, close_file, open_file

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.store.lmdb_file import LmdbFile

MOST_IN_MEMORY: Final = 8192
"""So many keys of a ``Seen`` are kept before they go to the file."""

Room = Callable[[], "LmdbFile | None"]
"""Gives the file; None where there can be none."""

NO_ROOM: Final = (BrokenIndex, UnwritableIndex, NoSpace)


@contextmanager
def scratch(staging: Path) -> Iterator[Room]:
    """Room for the time of the block: empty tables in a file, made when it is first called for.

    The file bears the name of an index that was put aside: should the process be killed, gc takes
    it.
    """
    folder = durable.temporary_name(staging, "index")
    made: list[LmdbFile | None] = []

    def room() -> LmdbFile | None:
        if not made:
            try:
                made.append(open_file(folder))
            except NO_ROOM:
                made.append(None)
        return made[0]

    try:
        yield room
    finally:
        if made:
            close_file(folder)
            if folder.is_dir():
                durable.remove_tree(folder)


class Seen:
    """A set of keys of 16 to 64 bytes. Exact; in ``room`` but for the last few thousand."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._file: LmdbFile | None = None
        self._is_full = False
        self._late: set[bytes] = set()

    def add(self, key: bytes) -> bool:
        """Whether ``key`` is new; it is none from here on."""
        if key in self:
            return False
        self._late.add(key)
        if len(self._late) >= MOST_IN_MEMORY and not self._is_full:
            self._flush()
        return True

    def __contains__(self, key: bytes) -> bool:
        return key in self._late or self._is_filed(key)

    def _is_filed(self, key: bytes) -> bool:
        if self._file is None:
            return False
        with self._file.reading() as tables:
            return tables.get(t.FINGERPRINTS, key) is not None

    def _flush(self) -> None:
        file = self._room()
        if file is None:
            self._is_full = True
            return
        try:
            with file.writing() as tables:
                for key in sorted(self._late):
                    tables.put(t.FINGERPRINTS, key, b"")
        except NO_ROOM:
            self._is_full = True
            return
        self._file = file
        self._late.clear()
