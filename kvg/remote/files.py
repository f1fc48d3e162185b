"""Named bytes at one place: what a remote that is made of plain files is built on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from kvg.codec import PREFIX_SIZE, parse_header, parse_header_size
from kvg.errors import Corrupt
from kvg.frozen import frozen
from kvg.remote import layout

if TYPE_CHECKING:
    from kvg.digest import Buffer, Digest

T = TypeVar("T")
R = TypeVar("R")
PIECE_BYTES = 512 << 10
"""The most bytes of one piece of a stream: they stay in a core's cache from the system's copy to
the hashes, and to the file that they go to. Of half as many there are twice the steps between, and
those take more than the cache saves."""

HEAD_BYTES = 1 << 12
"""Enough for the header of nearly every object."""

MAX_NAMES_BYTES = 512 << 20
"""The most memory that the names at one place may take, some four million of objects."""

_NAME_BYTES = 64
"""What a name takes besides its letters."""

ASKERS = 8
"""How many questions are asked at once of a place that takes its time to answer."""


@frozen
class Head:
    """The first bytes of a file, and how many it has in all."""

    data: bytes
    size: int


class Files(Protocol):
    """One place with files. Names were checked by ``layout.check_name``. Safe for threads.

    Raises ``RemoteFailed`` when the place can't be reached or refuses.
    """

    @property
    def url(self) -> str:
        """Its address, without credentials."""

    @property
    def is_writable(self) -> bool:
        """Whether ``write``, ``swap`` can work."""

    @property
    def keeps_folders(self) -> bool:
        """As ``Remote.keeps_folders``."""

    @property
    def writes_in_turn(self) -> bool:
        """As ``Remote.puts_in_turn``, of ``write``."""

    def read(self, name: str, limit: int) -> bytes | None:
        """The bytes of ``name``, at most ``limit`` + 1 of them; None when there is no such file."""

    def read_all(self, names: Sequence[str], limit: int) -> Mapping[str, bytes | None]:
        """As ``read``, for many names in few round trips."""

    def stream(self, name: str, *, start: int, limit: int) -> Iterator[bytes]:
        """``name`` from byte ``start`` on, ``limit`` bytes at most, in pieces of up to 1 MiB.

        Raises ``NotFound``.
        """

    def head(self, name: str, limit: int) -> Head | None:
        """The first ``limit`` bytes of ``name``, and its size; None when there is no such file."""

    def missing(self, digests: Sequence[Digest]) -> frozenset[Digest]:
        """As ``Remote.missing``."""

    def write(self, name: str, parts: Iterable[Buffer]) -> None:
        """Write or replace ``name``: seen whole or not at all, durable when this returns."""

    def swap(self, name: str, data: bytes | None, *, expect: bytes | None) -> None:
        """Replace (None: remove) ``name`` in one step if it holds ``expect`` (None: no file).

        Raises ``Conflict``, ``InTheWay`` where no file of this name can be.
        """

    def remove(self, name: str) -> int:
        """Remove ``name``; returns how many bytes it had. What is not there is gone already."""

    def remove_abandoned(self, *, dry_run: bool) -> tuple[int, int]:
        """Remove half-written files whose writer has ended; how many, and their bytes.

        None where the place itself keeps such things apart.
        """

    def names(self, folder: str) -> Sequence[str] | None:
        """Every file below ``folder``, relative to it, ascending; None where none can list."""

    def close(self) -> None:
        """Close what is open."""


def is_whole(files: Files, digest: Digest) -> bool:
    """Whether an object is there, under a header of its own and as long as that says."""
    name = layout.object_name(digest)
    try:
        head = files.head(name, HEAD_BYTES)
        if head is None:
            return False
        needed = parse_header_size(head.data[:PREFIX_SIZE], what=name)
        if needed > len(head.data):
            head = files.head(name, needed)
        if head is None:
            return False
        header = parse_header(head.data[:needed], what=name)
    except Corrupt:
        return False
    return header.digest == digest and header.stored_size == head.size


def missing(files: Files, digests: Sequence[Digest], *, askers: int) -> frozenset[Digest]:
    """Those of ``digests`` that are not whole, each asked for by itself."""
    wanted = tuple(dict.fromkeys(digests))
    whole = at_once(lambda digest: is_whole(files, digest), wanted, askers=askers)
    return frozenset(d for d, is_there in zip(wanted, whole, strict=True) if not is_there)


def gathered(names: Iterable[str], *, what: str) -> list[str]:
    """``names``, ascending, each once. Raises ``Corrupt`` where they come without an end."""
    found: set[str] = set()
    size_bytes = 0
    for name in names:
        size_bytes += len(name) + _NAME_BYTES
        if size_bytes > MAX_NAMES_BYTES:
            raise Corrupt(f"{what}: names without an end, {len(found):,} so far")
        found.add(name)
    return sorted(found)


def read_all(
    files: Files, names: Sequence[str], limit: int, *, askers: int
) -> Mapping[str, bytes | None]:
    """Each of ``names`` read by itself."""
    found = at_once(lambda name: files.read(name, limit), names, askers=askers)
    return dict(zip(names, found, strict=True))


def at_once(work: Callable[[T], R], items: Sequence[T], *, askers: int) -> Sequence[R]:
    """``work`` of each item, up to ``askers`` at a time."""
    if askers == 1 or len(items) < 2:
        return [work(item) for item in items]
    from kvg.crew import Crew

    with Crew(min(askers, len(items))) as pool:
        return list(pool.map(work, items))
