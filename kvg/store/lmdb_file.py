"""The index's LMDB environment: opened with care, because LMDB trusts its file and we don't.

A truncated file is a SIGBUS, a file of another program is nonsense, and the same path opened twice
in one process is an error. So the two meta pages are read and compared with the length of the file
before LMDB maps it, each value carries a check of itself, and a process holds one environment per
path, opened after a fork only.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from kvg import durable
from kvg.digest import sha256_bytes
from kvg.errors import Corrupt, KvgError, NoSpace
from kvg.store import tables as t

if TYPE_CHECKING:
    from pathlib import Path

    import lmdb

DATA_FILE = "data.mdb"
LOCK_FILE = "lock.mdb"
MAP_SIZES = (64 << 30, 4 << 30, 256 << 20)
"""Sizes of the sparse map, tried in turn where address space is rationed."""

MAX_READERS = 1024
LOCK_FILE_BYTES = 128 << 10
"""More than so many readers take. LMDB would make it a hole, and die where that can't be filled."""

CHECK_BYTES = 8
_MAGIC = 0xBEEFC0DE
_FORMAT = 1
_META = struct.Struct("<16x II QQ 48s 48s QQ")  # page header, then MDB_meta of LMDB 0.9


class BrokenIndex(KvgError):
    """The index can't be used as it is. Caught in ``kvg.store.index``, which rebuilds it."""


class UnwritableIndex(KvgError):
    """The index's folder can't be written to. Caught in ``kvg.store.index``."""


class LmdbFile:
    """One open environment."""

    def __init__(self, folder: Path, environment: lmdb.Environment) -> None:
        self.folder = folder
        self.identity = _identity(folder)
        self._environment = environment
        self._tables = {name: environment.open_db(name.encode(), create=True) for name in t.ALL}

    @contextmanager
    def reading(self) -> Iterator[LmdbTables]:
        """A snapshot for the time of the block. Raises ``BrokenIndex``."""
        with _translated(self.folder), self._environment.begin() as transaction:
            yield LmdbTables(transaction, self._tables)

    @contextmanager
    def writing(self) -> Iterator[t.WritableTables]:
        """One write, committed when the block ends well. Raises ``BrokenIndex``, ``NoSpace``."""
        with _translated(self.folder), self._environment.begin(write=True) as transaction:
            yield LmdbTables(transaction, self._tables)
            with durable.translated(self.folder):
                durable.step("commit", self.folder)

    def drop_folded(self) -> None:
        """Empty the tables that are recomputed from files."""
        with _translated(self.folder), self._environment.begin(write=True) as transaction:
            for name in t.FOLDED:
                transaction.drop(self._tables[name], delete=False)
            with durable.translated(self.folder):
                durable.step("commit", self.folder)

    def close(self) -> None:
        self._environment.close()


class LmdbTables:
    """Tables inside one transaction of LMDB; each value is led by a check of table, key, value."""

    def __init__(self, transaction: lmdb.Transaction, tables: dict[str, lmdb._Database]) -> None:
        self._transaction = transaction
        self._tables = tables

    def get(self, table: str, key: bytes) -> bytes | None:
        stored = self._transaction.get(key, db=self._tables[table])
        return None if stored is None else _checked(table, key, bytes(stored))

    def getter(self, table: str) -> Callable[[bytes], bytes | None]:
        """Reads one table by key as fast as can be: values come with their check, not checked."""
        get, database = self._transaction.get, self._tables[table]
        return cast("Callable[[bytes], bytes | None]", lambda key: get(key, None, database))

    def scan(self, table: str, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        with self._transaction.cursor(db=self._tables[table]) as cursor:
            if not (cursor.set_range(prefix) if prefix else cursor.first()):
                return
            for key, stored in cursor:
                found = bytes(key)
                if not found.startswith(prefix):
                    return
                yield found, _checked(table, found, bytes(stored))

    def put(self, table: str, key: bytes, value: bytes) -> None:
        self._transaction.put(key, _check(table, key, value) + value, db=self._tables[table])

    def delete(self, table: str, key: bytes) -> None:
        self._transaction.delete(key, db=self._tables[table])


def _check(table: str, key: bytes, value: bytes) -> bytes:
    head = f"{table} {len(key)} ".encode()
    return sha256_bytes(head + key + value)[:CHECK_BYTES]


def _checked(table: str, key: bytes, stored: bytes) -> bytes:
    value = stored[CHECK_BYTES:]
    if stored[:CHECK_BYTES] != _check(table, key, value):
        raise BrokenIndex(f"index: a value of {table} fails its check")
    return value


@contextmanager
def _translated(folder: Path) -> Iterator[None]:
    """Turn what LMDB raises inside into kvg's errors."""
    import lmdb

    try:
        yield
    except (lmdb.DiskError, lmdb.MapFullError) as error:
        raise NoSpace(f"{folder}: {error}", hint="free some space, then kvg reindex") from None
    except lmdb.ReadonlyError as error:
        raise UnwritableIndex(f"{folder}: {error}") from None
    except lmdb.Error as error:
        if _is_full(folder, error):
            raise NoSpace(f"{folder}: no space left", hint="free some space") from None
        raise BrokenIndex(f"{folder}: {error}") from None


def _is_full(folder: Path, error: Exception) -> bool:
    """Whether LMDB's 'Input/output error' means a full disk, as it does at a commit."""
    if "Input/output error" not in str(error) and "No space" not in str(error):
        return False
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < 1 << 20


_opened: dict[str, LmdbFile] = {}
_guard = threading.Lock()


def open_file(folder: Path) -> LmdbFile:
    """The environment in ``folder``, made when it is not there; one per process and path.

    Raises ``BrokenIndex`` for a file that must not be mapped, ``UnwritableIndex`` without
    permission to write.
    """
    with _guard:
        identity = _identity(folder)
        for known in _opened.values():
            if known.identity == identity:  # its inode is not used again while it is open
                return known
        key = os.path.realpath(folder)
        if key in _opened:
            _opened.pop(key).close()
        opened = _open(folder)
        _opened[key] = opened
        return opened


def close_file(folder: Path) -> None:
    """Close the environment in ``folder`` if this process has it open."""
    with _guard:
        known = _opened.pop(os.path.realpath(folder), None)
        if known is not None:
            known.close()


def _identity(folder: Path) -> tuple[int, int]:
    """Which file it is; another one has taken its place when this changes."""
    try:
        found = os.stat(f"{folder}{os.sep}{DATA_FILE}")
    except OSError:
        return (0, 0)
    return (found.st_dev, found.st_ino)


def _close_after_fork() -> None:
    """A child must not use its parent's environments; it opens its own when it needs one."""
    global _guard
    _guard = threading.Lock()
    while _opened:
        _opened.popitem()[1].close()


os.register_at_fork(after_in_child=_close_after_fork)


def _open(folder: Path) -> LmdbFile:
    import lmdb

    if not os.access(folder if folder.is_dir() else folder.parent, os.W_OK):
        raise UnwritableIndex(f"{folder}: not writable")
    durable.make_dir(folder)
    check_file(folder / DATA_FILE)
    durable.make_zeros(folder / LOCK_FILE, LOCK_FILE_BYTES)
    with _translated(folder):
        environment = _try_sizes(folder)
        try:
            for name in (DATA_FILE, LOCK_FILE):
                durable.open_to_group(folder / name)
            environment.reader_check()
            return LmdbFile(folder, environment)
        except lmdb.Error:
            environment.close()
            raise


def _try_sizes(folder: Path) -> lmdb.Environment:
    import lmdb

    for size in MAP_SIZES:
        try:
            return lmdb.open(
                os.fsencode(folder),
                map_size=size,
                max_dbs=len(t.ALL),
                max_readers=MAX_READERS,
                lib_version=0,
                sync=True,
                writemap=False,
                readahead=False,
            )
        except (lmdb.MemoryError, MemoryError):
            if size == MAP_SIZES[-1]:
                raise
    raise UnwritableIndex(f"{folder}: no address space for the index")


def check_file(path: Path) -> None:
    """Raise ``BrokenIndex`` unless the file is an LMDB 0.9 file that is as long as it says.

    A file that is not there, or empty, is a new one.
    """
    try:
        with open(path, "rb", opener=durable.plain) as file:
            metas, length = _read_metas(file.fileno())
    except FileNotFoundError:
        return
    except PermissionError:
        raise UnwritableIndex(f"{path}: permission denied") from None
    except Corrupt as error:
        raise BrokenIndex(error.message) from None
    except OSError as error:
        raise BrokenIndex(f"{path}: {error.strerror}") from None
    if length == 0:
        return
    if len(metas) != 2:
        raise BrokenIndex(f"{path}: not an index of this kvg")
    last_page, page_bytes = max((txn, last, size) for last, txn, size in metas)[1:]
    if length < (last_page + 1) * page_bytes:
        raise BrokenIndex(f"{path}: cut short: {length} bytes")


def _read_metas(fd: int) -> tuple[list[tuple[int, int, int]], int]:
    """(last page, transaction, page size) of each sound meta page, and the file's length."""
    metas: list[tuple[int, int, int]] = []
    offset = 0
    for _ in range(2):
        raw = os.pread(fd, _META.size, offset)
        if len(raw) < _META.size:
            break
        magic, version, _, _, free, _, last_page, txn = _META.unpack(raw)
        page_bytes = int.from_bytes(free[:4], "little")
        if magic != _MAGIC or version != _FORMAT or not _is_page_size(page_bytes):
            break
        metas.append((last_page, txn, page_bytes))
        offset = page_bytes
    return metas, os.fstat(fd).st_size


def _is_page_size(size: int) -> bool:
    return 512 <= size <= 65536 and size & (size - 1) == 0


def verify_file(path: Path) -> tuple[str, ...]:
    """What an offline walk of a file at rest finds wrong, without mapping it; empty when sound.

    Raises ``Corrupt`` when it is no LMDB file at all.
    """
    try:
        from lmdb.verify import VerifyError, verify
    except ImportError:
        return ()
    try:
        found = verify(os.fspath(path))  # type: ignore[no-untyped-call]
    except (VerifyError, OSError) as error:
        raise Corrupt(f"{path}: {error}", hint="kvg reindex") from None
    return tuple(str(problem) for problem in found)
