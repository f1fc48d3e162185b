"""A remote in a folder, also on a mounted share: temporary name, fsync, rename; CAS under flock."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from kvg import durable
from kvg.errors import Conflict, Corrupt, KvgError, NotFound, RemoteFailed, Unreadable
from kvg.locking import Lock
from kvg.remote import files as asking
from kvg.remote import layout
from kvg.remote.files import PIECE_BYTES, Head
from kvg.remote.tree import folders_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from kvg.digest import Buffer, Digest
    from kvg.report import Report

    Counted = Callable[[Iterable[Buffer]], Generator[Buffer, None, None]]
    """Gives the parts of an object on, each once there is room for it in the store that the folder
    is, and until it is written. Raises ``NoSpace``."""

    Keeper = Callable[[Path], Counted | None]
    """How what is written into a folder is counted; None where nobody counts it."""

STAGING = "tmp"
_STAGED = f"{STAGING}/any"
LOCK_FILE = "lock"
_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class DirectoryFiles:
    """See ``Files``. Links below the folder are never followed.

    An object's bytes are synced before it has its name; the names of many objects are synced
    together, before anything is written that may speak of them, and at ``close``.
    """

    is_writable = True
    keeps_folders = True
    writes_in_turn = True

    def __init__(
        self,
        folder: Path,
        *,
        keeper: Keeper | None = None,
        lock_wait: float | None = None,
        report: Report | None = None,
    ) -> None:
        """``keeper`` is asked once, before the first object is written. ``lock_wait``: the seconds
        to wait for another who moves a pointer; None waits for as long as it takes."""
        self._folder = folder
        self._keeper = keeper
        self._prefix = f"{folder}{os.sep}"
        self._staging = folder / STAGING
        self._guard = threading.Lock()
        self._naming = threading.Lock()
        self._lock = Lock(folder / LOCK_FILE, wait_s=lock_wait, report=report)
        self._unsynced: set[Path] = set()
        self._plain: set[str] = {""}
        """Folders below this one of which it was seen that they are no links."""

    @property
    def url(self) -> str:
        return str(self._folder)

    def read(self, name: str, limit: int) -> bytes | None:
        try:
            fd = self._open(name)
        except NotFound:
            return None
        with os.fdopen(fd, "rb") as file, _refused(self._prefix + name):
            return file.read(limit + 1)

    def stream(self, name: str, *, start: int, limit: int) -> Iterator[bytes]:
        with os.fdopen(self._open(name), "rb", buffering=0) as file:
            path = self._folder / name
            with _refused(path):
                file.seek(start)
            while limit > 0:
                with _refused(path):
                    piece = file.read(min(PIECE_BYTES, limit))
                if not piece:
                    return
                limit -= len(piece)
                yield piece

    def read_all(self, names: Sequence[str], limit: int) -> Mapping[str, bytes | None]:
        return asking.read_all(self, names, limit, askers=1)

    def head(self, name: str, limit: int) -> Head | None:
        try:
            fd = self._open(name)
        except NotFound:
            return None
        with os.fdopen(fd, "rb", buffering=0) as file, _refused(self._folder / name):
            return Head(file.read(limit), os.fstat(fd).st_size)

    def missing(self, digests: Sequence[Digest]) -> frozenset[Digest]:
        return asking.missing(self, digests, askers=1)

    def write(self, name: str, parts: Iterable[Buffer]) -> None:
        self.begin(name, parts)()

    def begin(self, name: str, parts: Iterable[Buffer]) -> Callable[[], None]:
        """The first half of ``write``; what comes back waits for the disk and gives the name."""
        path = self._folder / name
        is_object = name.startswith(f"{layout.OBJECTS}/")
        if not is_object:
            self._name_for_good()
        with _refused(self._folder), ExitStack() as stack:
            counted = self._counted if is_object else None
            if counted is not None:
                parts = stack.enter_context(closing(counted(parts)))
            held = self._held(name, stack, n_named=1 if is_object else None)
            if is_object:
                with self._guard:
                    self._unsynced |= {path.parent.parent, path.parent}
            staged = durable.stage(
                path, parts, staging=self._staging, is_named_for_good=not is_object, held=held
            )
            stack.pop_all()  # what is staged lets go of the folders

        def end() -> None:
            with _refused(self._folder):
                staged.publish(is_named_for_good=not is_object)

        return end

    @cached_property
    def _counted(self) -> Counted | None:
        return None if self._keeper is None else self._keeper(self._folder)

    def _held(
        self, name: str, stack: ExitStack, *, n_named: int | None = None
    ) -> tuple[durable.Held, durable.Held]:
        """The folder of ``name`` and the temporary one, held for as long as ``stack`` is open."""
        staging = stack.enter_context(durable.hold(self._folder, STAGING))
        folder = durable.hold(self._folder, name.rpartition("/")[0], n_named=n_named)
        return stack.enter_context(folder), staging

    def swap(self, name: str, data: bytes | None, *, expect: bytes | None) -> None:
        self._check_folders(name)
        path = self._folder / name
        self._name_for_good()
        if data is not None:
            self._make_way(name)
        is_expected = self._expected(name, expect)
        with _refused(path), ExitStack() as stack:
            held = self._held(name, stack)
            if data is None:
                with is_expected:
                    durable.remove(path, held=held[0])
            else:
                staging = self._staging
                durable.replace(path, [data], staging=staging, held=held, under=is_expected)
                stack.pop_all()

    def _make_way(self, name: str) -> None:
        """Take away empty folders where the file ``name`` is to be. Raises ``InTheWay``."""
        for folder in folders_of(name):
            if os.path.isfile(self._prefix + folder):
                raise layout.InTheWay(f"{self._prefix}{name}: {folder} is a file there")
        path = self._folder / name
        if os.path.isdir(path) and not durable.remove_empty(path):
            raise layout.InTheWay(f"{path}: a folder that is not empty")

    @contextmanager
    def _expected(self, name: str, expect: bytes | None) -> Iterator[None]:
        """Nobody else swaps meanwhile, and ``name`` holds ``expect``. Raises ``Conflict``."""
        with self._locked():
            limit = 0 if expect is None else len(expect)
            if self.read(name, limit) != expect:
                raise Conflict(f"{self._folder / name}: changed meanwhile")
            yield

    def remove(self, name: str) -> int:
        self._check_folders(name)
        path = self._folder / name
        with _refused(path):
            try:
                with durable.hold(self._folder, name.rpartition("/")[0], make=False) as held:
                    size = os.stat(path.name, dir_fd=held.fd, follow_symlinks=False).st_size
                    durable.remove(path, held=held)
                    return size
            except _ABSENT:
                return 0

    def remove_abandoned(self, *, dry_run: bool) -> tuple[int, int]:
        count = size = 0
        with _refused(self._staging), ExitStack() as stack:
            try:
                held = stack.enter_context(durable.hold(self._folder, STAGING, make=False))
            except (*_ABSENT, durable.LinkFound):
                return 0, 0
            for name in sorted(os.listdir(held.fd)):
                if not name.startswith(f"{durable.PARTIAL}."):
                    continue
                path = self._staging / name
                freed = durable.remove_abandoned(path, dry_run=dry_run, held=held)
                if freed is not None:
                    count, size = count + 1, size + freed
        return count, size

    def names(self, folder: str) -> Sequence[str]:
        self._check_folders(f"{folder}/any")
        root = self._folder / folder
        found: list[str] = []
        with _refused(root):
            for parent, folders, files in durable.walk(root):
                folders[:] = [name for name in folders if layout.is_name(name)]
                inside = os.path.relpath(parent, root)
                prefix = "" if inside == "." else inside + "/"
                found += [prefix + name for name in files if layout.is_name(name)]
        return sorted(found)

    def close(self) -> None:
        try:
            self._name_for_good()
        except KvgError:
            pass  # nothing speaks of them: what loses its name is sent again

    def _name_for_good(self) -> None:
        """Sync the folders in which objects got their names, each once; who comes second waits."""
        with self._naming:
            with self._guard:
                folders, self._unsynced = sorted(self._unsynced), set()
            with _refused(self._folder):
                durable.sync_dirs(folder for folder in folders if folder.is_dir())

    def _open(self, name: str) -> int:
        self._check_folders(name)
        path = self._prefix + name  # joining paths costs more than opening a file
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except _ABSENT:
            raise NotFound(f"{path}: not there") from None
        except OSError as error:
            if os.path.islink(path):
                raise _link(path) from None
            if error.errno == errno.ENXIO:  # a socket
                raise _no_file(path) from None
            raise RemoteFailed(f"{path}: {_words(error)}", hint="check the mount") from None
        kind = os.fstat(fd).st_mode
        if stat.S_ISREG(kind):
            return fd
        os.close(fd)
        if stat.S_ISDIR(kind):
            raise NotFound(f"{path}: a folder")
        raise _no_file(path)

    def _check_folders(self, name: str) -> None:
        """Raise ``Corrupt`` where a folder on the way to ``name`` is a link.

        What leads out of the remote would be written to, and removed from, as if it were a part.
        """
        folder = name.rpartition("/")[0]
        if folder in self._plain:
            return
        self._check_folders(folder)
        path = self._prefix + folder
        if os.path.islink(path):
            raise _link(path)
        if os.path.isdir(path):  # what is not there yet may become a link
            self._plain.add(folder)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Whoever may read the folder can hold the lock: nobody is waited for in silence, nor
        longer than ``lock_wait``. Raises ``HeldUp``."""
        self._check_folders(_STAGED)
        with ExitStack() as stack:
            with _refused(self._folder / LOCK_FILE):
                durable.make_dir(self._staging)
                try:
                    stack.enter_context(self._lock.exclusive())
                except Conflict as error:
                    raise layout.HeldUp(error.message, hint=error.hint) from None
            yield


def _link(path: Path | str) -> Corrupt:
    return Corrupt(
        f"{path}: a link",
        hint="a remote has plain files and folders: put what it leads to in its place, or remove "
        "it and push again",
    )


def _no_file(path: str) -> Corrupt:
    return Corrupt(f"{path}: not a plain file", hint=f"whoever owns that folder removes {path}")


@contextmanager
def _refused(path: Path | str) -> Iterator[None]:
    """What the file system of a remote refuses is the remote's failure, a full one ``NoSpace``."""
    try:
        yield
    except OSError as error:
        try:
            durable.raise_translated(error, path)
        except KvgError as told:
            _raise_remote(told)
    except KvgError as told:
        _raise_remote(told)


def _raise_remote(error: KvgError) -> None:
    if isinstance(error, durable.LinkFound):
        raise _link(error.path) from None
    if type(error) in (KvgError, NotFound, Unreadable):
        raise RemoteFailed(error.message, hint=error.hint or "check the mount") from None
    raise error


def _words(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
