"""What artifacts take on disk, alone and together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kvg.digest import Digest
from kvg.errors import Corrupt, Incompatible, KvgError, Unreadable
from kvg.frozen import frozen
from kvg.store.closure import Closure, closure, idle_pins

if TYPE_CHECKING:
    from kvg.store.store import Store


@frozen
class Size:
    """One artifact: ``bytes`` is what its objects take, ``own_bytes`` what only it needs."""

    digest: Digest
    objects: int
    bytes: int
    own_bytes: int


@frozen
class Unsized:
    """An artifact that can't be sized, and why: nobody knows what it needs."""

    digest: Digest
    error: KvgError


def sizes(store: Store, digests: Iterable[Digest]) -> Iterator[Size | Unsized]:
    """The sizes of ``digests``; 'only it' is meant among these and every ref and pin.

    Objects that are missing take nothing.
    """
    wanted = tuple(dict.fromkeys(digests))
    kept = {*store.refs().values(), *store.pins(), *wanted} - idle_pins(store)
    users: Counter[Digest] = Counter()
    needed: dict[Digest, Closure | KvgError] = {}
    for digest in kept.union(wanted):
        try:
            found = needed[digest] = closure(store, digest)
        except (Corrupt, Incompatible, Unreadable) as error:
            needed[digest] = error
        else:
            users.update(found.objects())
    for digest in wanted:
        known = needed[digest]
        if isinstance(known, KvgError):
            yield Unsized(digest, known)
            continue
        there = [item for item in known.objects() if store.objects.has(item)]
        stored = {item: store.objects.stored_size(item) for item in there}
        own = sum(size for item, size in stored.items() if users[item] == 1)
        yield Size(digest, len(there), sum(stored.values()), own)
