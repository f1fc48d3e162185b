"""``kvg du``: what artifacts and the store take on disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kvg.flow.records.upkeep import Usage, UsageSummary
from kvg.store.layout import LOST_FOUND
from kvg.store.quota import size_of
from kvg.store.sizes import sizes

if TYPE_CHECKING:
    from kvg.flow.records import Record
    from kvg.store import Store


def du(store: Store, targets: Sequence[str] = ()) -> Iterator[Record]:
    """One record for each of ``targets`` (all refs without any), then the store as a whole.

    Raises ``NotFound``, ``Corrupt``.
    """
    if targets:
        named = [(found.ref, found.digest) for found in map(store.resolve, targets)]
    else:
        named = [(name, digest) for name, digest in sorted(store.refs().items())]
    found = {size.digest: size for size in sizes(store, [digest for _, digest in named])}
    for ref, digest in named:
        size = found[digest]
        yield Usage(ref, digest, size.objects, size.bytes, size.own_bytes)
    yield summary(store)


def summary(store: Store) -> UsageSummary:
    """The bytes of the store's files, by kind."""
    root = store.root
    return UsageSummary(
        objects=sum(1 for _ in store.objects.all()),
        object_bytes=size_of(root / "objects"),
        temporary_bytes=size_of(root / "tmp"),
        lost_found_bytes=size_of(root / LOST_FOUND),
        log_bytes=size_of(root / "log"),
        index_bytes=size_of(root / "index.lmdb"),
        reserve_bytes=size_of(store.reserve.folder),
        quota=store.quota.limit,
    )
