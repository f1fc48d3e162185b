"""The index: a cache of the fold over the log, in LMDB, rebuilt from files whenever in doubt."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from kvg import canon, durable
from kvg.digest import from_raw
from kvg.errors import Conflict, Corrupt, Incompatible, KvgError, NoSpace, Untrusted
from kvg.frozen import frozen
from kvg.store import tables as t
from kvg.store.lmdb_file import (
    DATA_FILE,
    BrokenIndex,
    LmdbFile,
    UnwritableIndex,
    check_file,
    close_file,
    open_file,
    verify_file,
)
from kvg.store.tables import MemoryTables

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.digest import Digest
    from kvg.locking import Lock
    from kvg.log.log import Log
    from kvg.store.fold import ClaimReader, Reader
    from kvg.store.selector import Selector
    from kvg.store.tables import Tables, WritableTables

T = TypeVar("T")
SCHEMA = "kvg.index/6"
BATCH_ENTRIES = 2048
_STATE = b"log"


@frozen
class State:
    """Up to where the log is folded: its origin, how many entries, and the root over those."""

    origin: str
    size: int
    root: bytes


class Index:
    """The tables of one store, brought up to date with its log at every read.

    A missing, stale, truncated, damaged or foreign file is rebuilt. Where nothing can be written
    the fold is kept in memory, so a read-only store answers all the same.
    """

    def __init__(
        self,
        folder: Path,
        *,
        staging: Path,
        lock: Lock,
        log: Callable[[], Log],
        read: Reader,
        claim: ClaimReader | None = None,
    ) -> None:
        self.folder = folder
        self._staging = staging
        self._lock = lock
        self._log = log
        self._read = read
        self._claim = claim
        self._memory: tuple[State, MemoryTables] | None = None
        self._is_distrusted = False
        self._vouched: State | None = None

    def query(self, ask: Callable[[Tables], T]) -> T:
        """What ``ask`` answers on one consistent, up-to-date view; it may be asked twice.

        Raises what reading the log raises: ``Corrupt``, ``Untrusted``.
        """
        for _ in range(0 if self._is_distrusted else 2):
            try:
                file = open_file(self.folder)
                self._catch_up(file)
                with file.reading() as tables:
                    return ask(tables)
            except BrokenIndex:
                if not self._discard():
                    break
            except (UnwritableIndex, NoSpace):
                break
        return ask(self._in_memory())

    def glimpse(self, ask: Callable[[Tables], T]) -> T | None:
        """What ``ask`` answers on the file as it lies, which the log is not asked about; None where
        there is none that can be read. It says what may be worth preparing, and nothing more."""
        if self._is_distrusted or not (self.folder / DATA_FILE).exists():
            return None
        try:
            with open_file(self.folder).reading() as tables:
                return ask(tables)
        except (BrokenIndex, UnwritableIndex, NoSpace, Corrupt):
            return None

    def query_at(self, log: Log, ask: Callable[[Tables], T]) -> T | None:
        """As ``query``, on the tables at the position of ``log``; None where they are at another,
        as somebody published since."""

        def ask_there(tables: Tables) -> T | None:
            state = _read_state(tables)
            return ask(tables) if state is None or state == _state_of(log) else None

        return self.query(ask_there)

    def is_vouched(self, log: Log) -> bool:
        """Whether the tables were held against the log at that position, and are as they were."""
        return self._vouched == _state_of(log)

    def vouched_for(self, log: Log) -> None:
        """They were: all that the log alone decides is as it says."""
        self._vouched = _state_of(log)

    def disown(self) -> None:
        """Have no answer from the file as it lies: it is made anew, or passed over."""
        if not self._discard():
            self.distrust()

    @contextmanager
    def selecting(self) -> Iterator[Selector]:
        """Look-ups of methods by family on one view, held for the time of the block.

        Raises what reading the log raises.
        """
        from kvg.store.selector import Selector

        try:
            file = open_file(self.folder)
            self._catch_up(file)
        except (BrokenIndex, UnwritableIndex, NoSpace):
            tables, size = self._in_memory(), self._log().size
            yield Selector(lambda key: tables.get(t.FAMILIES, key), size)
            return
        with file.reading() as view:
            state = _read_state(view)
            yield Selector(view.getter(t.FAMILIES), state.size if state else 0)

    def update(self) -> bool:
        """Fold what the log has gained; False when that can't be written (the log stands)."""
        try:
            self._catch_up(open_file(self.folder))
        except BrokenIndex:
            return self._discard()
        except (UnwritableIndex, NoSpace):
            return False
        return True

    def rebuild(self, *, anew: bool = False) -> State:
        """Recompute every table from the log and the objects; returns up to where.

        ``anew``: in a new file, whatever the old one is like. Raises ``Corrupt``, ``Untrusted``,
        ``NoSpace``, ``Conflict``.
        """
        with self._lock.exclusive():
            if anew:
                self._move_aside()
            self._is_distrusted = False
            try:
                file = open_file(self.folder)
                file.drop_folded()
            except BrokenIndex:
                self._move_aside()
                file = open_file(self.folder)
            except UnwritableIndex as error:
                raise KvgError(error.message, hint=f"check who owns {self.folder}") from None
            self._catch_up(file)
        return _state_of(self._log())

    def note(self, change: Callable[[WritableTables], None]) -> None:
        """Add something recomputable to the tables, e.g. an artifact whose objects came late."""
        try:
            with open_file(self.folder).writing() as tables:
                change(tables)
        except (BrokenIndex, UnwritableIndex, NoSpace):
            return

    def list_again(self, subjects: Iterable[Digest]) -> None:
        """List what came back of ``subjects`` after the tables were made without it.

        For whoever brings objects that the log may name already; what is listed is not looked at.
        Raises what reading the log raises.
        """
        from kvg.store.fold import is_listed, list_again, no_claim

        wanted = tuple(dict.fromkeys(subjects))
        absent = self.query(lambda tables: [d for d in wanted if not is_listed(tables, d)])

        def change(tables: WritableTables) -> None:
            for digest in absent:
                list_again(tables, digest, self._read, self._claim or no_claim)

        if absent:
            self.note(change)

    def recall(self, key: bytes) -> bytes | None:
        """What was remembered under ``key`` (32 bytes), None when nothing was or it is lost."""
        try:
            with open_file(self.folder).reading() as tables:
                return tables.get(t.FINGERPRINTS, key)
        except (BrokenIndex, UnwritableIndex, NoSpace):
            return None

    def remember(self, key: bytes, value: bytes) -> None:
        """Keep ``value`` under ``key`` as long as the index lasts; losing it costs only time."""
        self.note(lambda tables: tables.put(t.FINGERPRINTS, key, value))

    def close(self) -> None:
        """Close the file, for this whole process."""
        close_file(self.folder)
        self._memory = None

    def _catch_up(self, file: LmdbFile) -> None:
        log = self._log()
        with file.reading() as tables:
            state = _read_state(tables)
        if state is not None and state.size > log.size:
            log = self._log()  # another process published since, and folded it
        if state == _state_of(log):
            return
        if state is not None and not _continues(log, state):
            file.drop_folded()
        while True:
            with file.writing() as tables:
                state = _read_state(tables)
                if state is not None and state.size >= log.size:
                    return
                self._fold(tables, log, state.size if state else 0, BATCH_ENTRIES)

    def _fold(self, tables: WritableTables, log: Log, start: int, most: int) -> None:
        from kvg.store.fold import fold_log, no_claim

        stop = min(log.size, start + most)
        fold_log(tables, log, start, stop, self._read, self._claim or no_claim)
        root = log.root if stop == log.size else log.root_at(stop)
        _write_state(tables, State(log.origin, stop, root))

    def _in_memory(self) -> MemoryTables:
        log = self._log()
        wanted = _state_of(log)
        known = self._memory
        if known is not None and known[0] == wanted:
            return known[1]
        if known is not None and _continues(log, known[0]):
            start, tables = known[0].size, known[1]
        else:
            start, tables = 0, MemoryTables()
        self._memory = None
        self._fold(tables, log, start, log.size)
        self._memory = (wanted, tables)
        return tables

    def _discard(self) -> bool:
        """Take a broken file out of the way; False when that can't be done now."""
        try:
            with self._lock.exclusive():
                close_file(self.folder)
                self._move_aside()
        except (Conflict, NoSpace):
            return False
        except KvgError as error:
            if error.code != KvgError.code:
                raise
            return False
        return True

    def _move_aside(self) -> None:
        close_file(self.folder)
        aside = durable.temporary_name(self._staging, "index")
        with durable.translated(self.folder):
            durable.step("rename", self.folder)
            try:
                os.rename(self.folder, aside)
            except FileNotFoundError:
                return
            if aside.is_dir() and not aside.is_symlink():
                durable.remove_tree(aside)
            else:
                durable.remove(aside)

    def distrust(self) -> None:
        """Answer from a fold in memory from here on, until the file is rebuilt."""
        self._is_distrusted = True

    def structure_faults(self) -> tuple[str, ...]:
        """What is wrong with the file as such, looked at without mapping it; none when sound.

        A file that is not there is none to find fault with. Raises ``Conflict``.
        """
        path = self.folder / DATA_FILE
        if not path.exists():
            return ()
        with self._lock.exclusive():
            for last_try in (False, True):  # a cache may be written to without the lock
                found = _structure_faults(path)
                if last_try or not found:
                    break
        return found

    def recorded(self) -> State | None:
        """Up to where the file on disk says that it is folded; None when it says nothing."""
        if not (self.folder / DATA_FILE).exists():
            return None
        try:
            with open_file(self.folder).reading() as tables:
                return _read_state(tables)
        except (BrokenIndex, UnwritableIndex, NoSpace):
            return None

    def differences(self) -> tuple[str, ...]:
        """Where the tables on disk say other than the log and the objects; none when they agree.

        Computes all tables anew: of a long log in a file beside it, in memory where there can be
        none. Nobody waits for it, and what others write meanwhile is no difference; what an
        object that is gone has left in a table is none either.
        Raises what reading the log raises.
        """
        from kvg.store.scratch import scratch

        with scratch(self._staging) as room:
            beside = room() if self._log().size > BATCH_ENTRIES else None
            if beside is not None:
                try:
                    return self._compared(_Recount(self._fold, beside))
                except _NoRoom:
                    pass
        return self._compared(_Recount(self._fold, None))

    def _compared(self, recount: _Recount) -> tuple[str, ...]:
        """Where one view of the file differs from ``recount`` at that view's own position: others
        write meanwhile. Raises ``_NoRoom``."""
        log = self._log()
        recount.extend(log, log.size)
        while True:
            try:
                file = open_file(self.folder)
                self._catch_up(file)
                with file.reading() as tables:
                    state = _read_state(tables)
                    if state is None or state.size < recount.size:
                        continue  # somebody began it anew
                    recount.extend(self._log(), state.size)
                    with recount.reading() as wanted:
                        return tuple(self._differences(tables, wanted))
            except BrokenIndex as error:
                return (error.message,)
            except (UnwritableIndex, NoSpace):
                return ()

    def _differences(self, found: Tables, wanted: Tables) -> Iterator[str]:
        for name in t.EXACT:
            n = sum(1 for _ in _unequal(found.scan(name), wanted.scan(name)))
            if n:
                yield f"{name}: {n} rows differ from the log"
        for name in (t.TOKENS, t.PREFIXES, t.OUTLINES):
            differing = _unequal(found.scan(name), wanted.scan(name))
            n = sum(1 for key in differing if self._read(from_raw(key[-32:])) is not None)
            if n:
                yield f"{name}: {n} rows differ from the objects"

    def check(self) -> None:
        """Raise ``Corrupt`` when the file on disk could not be used as it is."""
        try:
            check_file(self.folder / "data.mdb")
        except (BrokenIndex, UnwritableIndex) as error:
            raise Corrupt(error.message, hint="kvg reindex") from None


class _NoRoom(Exception):
    """There is no room for a ``_Recount`` in its file."""


class _Recount:
    """The tables computed anew from the log up to ``size``, in ``file`` or in memory."""

    def __init__(
        self, fold: Callable[[WritableTables, Log, int, int], None], file: LmdbFile | None
    ) -> None:
        self.size = 0
        self._fold = fold
        self._file = file
        self._memory = MemoryTables()

    def extend(self, log: Log, size: int) -> None:
        """Fold up to ``size`` or the end of ``log``. Raises ``_NoRoom``, and as reading it does."""
        from kvg.store.scratch import NO_ROOM

        stop = min(size, log.size)
        while self.size < stop:
            count = min(BATCH_ENTRIES, stop - self.size)
            try:
                with self._writing() as tables:
                    self._fold(tables, log, self.size, count)
            except NO_ROOM as error:
                raise _NoRoom from error
            self.size += count

    def _writing(self) -> AbstractContextManager[WritableTables]:
        return self._file.writing() if self._file else nullcontext(self._memory)

    def reading(self) -> AbstractContextManager[Tables]:
        """What was computed, for the time of the block. Raises ``BrokenIndex``."""
        return self._file.reading() if self._file else nullcontext(self._memory)


def _unequal(
    found: Iterator[tuple[bytes, bytes]], wanted: Iterator[tuple[bytes, bytes]]
) -> Iterator[bytes]:
    """The keys that are in one of two ascending tables only, or in both with other values."""
    one, two = next(found, None), next(wanted, None)
    while one is not None or two is not None:
        if one == two:
            one, two = next(found, None), next(wanted, None)
        elif one is not None and (two is None or one[0] < two[0]):
            yield one[0]
            one = next(found, None)
        elif two is not None and (one is None or two[0] < one[0]):
            yield two[0]
            two = next(wanted, None)
        elif one is not None:
            yield one[0]
            one, two = next(found, None), next(wanted, None)


def _structure_faults(path: Path) -> tuple[str, ...]:
    try:
        check_file(path)
        return verify_file(path)
    except (BrokenIndex, Corrupt) as error:
        return (error.message,)
    except UnwritableIndex:
        return ()


def _state_of(log: Log) -> State:
    return State(log.origin, log.size, log.root)


def check_not_back(log: Log, state: State) -> None:
    """Raise ``Untrusted`` where ``state``, read before ``log``, was folded from what that is no
    more: an index never goes ahead of its log. To make the index anew would forget it."""
    if state.origin != log.origin or _continues(log, state):
        return
    how = f"rolled back from size {state.size} to {log.size}"
    if state.size <= log.size:
        how = f"forked at or before size {state.size}"
    raise Untrusted(
        f"log {log.folder}: {how}, by the index that was made from it",
        hint="restore the newer log from a copy of the store or a peer; if this one is what you "
        "want, kvg reindex",
    )


def _continues(log: Log, state: State) -> bool:
    """Whether ``log`` is what was folded and perhaps more."""
    return (
        state.origin == log.origin
        and state.size <= log.size
        and log.is_extension_of(state.size, state.root)
    )


def _read_state(tables: Tables) -> State | None:
    raw = tables.get(t.META, _STATE)
    return None if raw is None else _parse_state(raw)


@lru_cache(maxsize=4)
def _parse_state(raw: bytes) -> State:
    what = "index: state"
    try:
        value = canon.decode(raw, what=what)
        canon.check_schema(value, SCHEMA, what=what)
        value = canon.take(value, ("schema", "origin", "size", "root"), what=what)
        root = bytes.fromhex(canon.as_str(value["root"], what=what))
        size = canon.as_int(value["size"], what=what)
        return State(canon.as_str(value["origin"], what=what), size, root)
    except (Corrupt, Incompatible, ValueError) as error:
        raise BrokenIndex(f"index: {error}") from None


def _write_state(tables: WritableTables, state: State) -> None:
    value: canon.Json = {
        "schema": SCHEMA,
        "origin": state.origin,
        "size": state.size,
        "root": state.root.hex(),
    }
    tables.put(t.META, _STATE, canon.encode(value))
