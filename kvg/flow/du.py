"""``kvg du``: what artifacts and the store take on disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kvg.flow.records.findings import Finding
from kvg.flow.records.upkeep import Usage, UsageSummary
from kvg.store.layout import LOST_FOUND
from kvg.store.quota import size_of
from kvg.store.sizes import Unsized, sizes

if TYPE_CHECKING:
    from kvg.flow.records import Record
    from kvg.store import Store


def du(store: Store, targets: Sequence[str] = ()) -> Iterator[Record]:
    """One record for each of ``targets`` (all refs without any), then the store as a whole.

    An artifact whose manifest can't be read is a finding. Raises ``NotFound``.
    """
    if targets:
        named = [(found.ref, found.digest) for found in map(store.resolve, targets)]
    else:
        named = [(name, digest) for name, digest in sorted(store.refs().items())]
    found = {size.digest: size for size in sizes(store, [digest for _, digest in named])}
    for ref, digest in named:
        size = found[digest]
        if isinstance(size, Unsized):
            error = size.error
            yield Finding(error.code, error.kind, ref or digest, error.message, error.hint)
            continue
        yield Usage(ref, digest, size.objects, size.bytes, size.own_bytes)
    yield summary(store)


def summary(store: Store) -> UsageSummary:
    """The bytes of the store's files, by kind."""
    root = store.root
    told = ("objects", "tmp", LOST_FOUND, "log", "index.lmdb", store.reserve.folder.name)
    by_kind = {name: size_of(root / name) for name in told}
    total = size_of(root)
    return UsageSummary(
        objects=sum(1 for _ in store.objects.all()),
        object_bytes=by_kind["objects"],
        temporary_bytes=by_kind["tmp"],
        lost_found_bytes=by_kind[LOST_FOUND],
        log_bytes=by_kind["log"],
        index_bytes=by_kind["index.lmdb"],
        reserve_bytes=by_kind[store.reserve.folder.name],
        quota=store.quota.limit,
        other_bytes=max(0, total - sum(by_kind.values())),
        total_bytes=total,
    )
