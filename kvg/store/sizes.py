"""What artifacts take on disk, alone and together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kvg.digest import Digest
from kvg.frozen import frozen
from kvg.store.closure import closure, idle_pins

if TYPE_CHECKING:
    from kvg.store.store import Store


@frozen
class Size:
    """One artifact: ``bytes`` is what its objects take, ``own_bytes`` what only it needs."""

    digest: Digest
    objects: int
    bytes: int
    own_bytes: int


def sizes(store: Store, digests: Iterable[Digest]) -> Iterator[Size]:
    """The sizes of ``digests``; 'only it' is meant among these and every ref and pin.

    Raises ``Corrupt`` when a manifest can't be read. Objects that are missing take nothing.
    """
    wanted = tuple(dict.fromkeys(digests))
    kept = {*store.refs().values(), *store.pins(), *wanted}
    users: Counter[Digest] = Counter()
    for digest in kept - idle_pins(store):
        users.update(closure(store, digest).objects())
    for digest in wanted:
        found = [item for item in closure(store, digest).objects() if store.objects.has(item)]
        stored = {item: store.objects.stored_size(item) for item in found}
        own = sum(size for item, size in stored.items() if users[item] == 1)
        yield Size(digest, len(found), sum(stored.values()), own)
