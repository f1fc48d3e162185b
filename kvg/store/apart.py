"""The fold over the log made anew, apart from the index: for what must not rest on a cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from kvg.store.fold import ClaimReader, fold_log
from kvg.store.index import BATCH_ENTRIES, Index
from kvg.store.scratch import NO_ROOM
from kvg.store.tables import MemoryTables

if TYPE_CHECKING:
    from kvg.digest import Digest
    from kvg.locking import Lock
    from kvg.log.log import Log
    from kvg.store.lmdb_file import LmdbFile
    from kvg.store.scratch import Room
    from kvg.store.tables import Tables

T = TypeVar("T")


class Apart(Index):
    """Answers as ``beside`` does, from tables of its own that only the log and envelopes fill.

    What ``beside`` has on disk is never looked at. Of a long log the tables lie in ``room``, in
    memory where there is none. They list no artifact by its token ids.
    """

    def __init__(
        self, beside: Index, room: Room, *, lock: Lock, log: Callable[[], Log], claim: ClaimReader
    ) -> None:
        super().__init__(
            beside.folder, staging=beside.folder.parent, lock=lock, log=log, read=_unread
        )
        self._room = room
        self._says = claim
        self._in_file: LmdbFile | None = None
        self._in_memory_only = MemoryTables()
        self._size = 0

    def query(self, ask: Callable[[Tables], T]) -> T:
        """See ``Index.query``."""
        log = self._log()
        if self._in_file is None and self._size < BATCH_ENTRIES < log.size:
            self._in_file = self._room()
            self._size = 0 if self._in_file else self._size
        if self._in_file is not None:
            try:
                return self._ask_file(self._in_file, log, ask)
            except NO_ROOM:
                self._in_file, self._size = None, 0
                self._in_memory_only = MemoryTables()
        if self._size < log.size:
            fold_log(self._in_memory_only, log, self._size, log.size, _unread, self._says)
            self._size = log.size
        return ask(self._in_memory_only)

    def _ask_file(self, file: LmdbFile, log: Log, ask: Callable[[Tables], T]) -> T:
        while self._size < log.size:
            stop = min(log.size, self._size + BATCH_ENTRIES)
            with file.writing() as tables:
                fold_log(tables, log, self._size, stop, _unread, self._says)
            self._size = stop
        with file.reading() as tables:
            return ask(tables)


def _unread(digest: Digest) -> None:
    """Token ids are not wanted."""
