"""What the index says of one artifact, of a ref and of trust, held against the log itself.

Whoever can write into the store's folder can write into the index, with no key: a row that is taken
out would hide that a replay failed, or that a key was revoked. So what a signature is judged by is
looked up in the entries themselves, each checked against the signed checkpoint. An index that says
something else is made anew, and what is asked from then on is the log's.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from kvg import canon
from kvg.digest import Digest, raw_of, short
from kvg.errors import Corrupt
from kvg.log.entry import parse_entry
from kvg.store import tables as t
from kvg.store.fold import fold
from kvg.store.names import is_ref_name
from kvg.store.tables import MemoryTables

if TYPE_CHECKING:
    from kvg.log.log import Log
    from kvg.store.store import Store
    from kvg.store.tables import Tables

_OF_TRUST: Final = (b'"type":"trust"', b'"type":"revoke"')
_TRIES: Final = 8
"""How often others may publish meanwhile before the index is made anew, whatever it says."""


class TurnedRef(Corrupt):
    """A ref stands for something else than the index said, and what was found by it is that."""


def vouch(store: Store, digest: Digest, *, ref: str | None = None) -> None:
    """Hold against the log what the index says of trust, of the statements about ``digest``, and of
    what ``ref``, the name by which it was found, stands for.

    It takes a look at every entry of the log, once for each position of it in a process, and no
    time where ``vouch_all`` has been had for that position. Raises ``TurnedRef`` where ``ref`` does
    not stand for ``digest``, as the index had said.
    """
    named = ref if ref is not None and is_ref_name(ref) else None
    for _ in range(_TRIES):
        log = store.log
        if store.index.is_vouched(log):
            return
        agrees = _agrees_at(store, log, digest, named)
        if agrees is not None:
            break
    if not agrees:
        store.index.disown()
        _check_ref(store, digest, named)


def _agrees_at(store: Store, log: Log, digest: Digest, ref: str | None) -> bool | None:
    """None where somebody published since."""
    said = _by_log(log, digest, ref)
    return store.index.query_at(log, lambda tables: _agree(tables, said, digest, ref))


def vouch_all(store: Store) -> None:
    """As ``vouch``, for all that the log alone decides."""
    log = store.log
    if store.index.is_vouched(log):
        return
    with store.by_log() as certain:

        def ask(tables: Tables) -> bool:
            return certain.index.query(
                lambda others: all(_same(tables.scan(name), others.scan(name)) for name in t.EXACT)
            )

        agrees = store.index.query_at(log, ask)
    if agrees is False:
        store.index.disown()
    elif agrees:
        store.index.vouched_for(log)


def _by_log(log: Log, digest: Digest, ref: str | None) -> MemoryTables:
    """The tables as the entries leave them that speak of these."""
    needles = [digest.encode(), *_OF_TRUST]
    if ref is not None:
        needles.append(b'"name":' + canon.encode(ref))
    tables = MemoryTables()
    for index, raw in log.naming(needles):
        fold(tables, index, parse_entry(raw, what=f"log entry {index}"), lambda _: None)
    return tables


def _agree(tables: Tables, said: Tables, digest: Digest, ref: str | None) -> bool:
    raw = raw_of(digest)
    scans: list[tuple[str, bytes]] = [(t.TRUST, b""), (t.REVOKED, b""), (t.ATTESTATIONS, raw)]
    rows: list[tuple[str, bytes]] = [(t.FORGOTTEN, raw)]
    if ref is not None:
        rows.append((t.REFS, ref.encode()))
    return all(_same(tables.scan(*part), said.scan(*part)) for part in scans) and all(
        tables.get(*row) == said.get(*row) for row in rows
    )


def _same(a: Iterator[tuple[bytes, bytes]], b: Iterator[tuple[bytes, bytes]]) -> bool:
    return all(one == other for one, other in zip_longest(a, b))


def _check_ref(store: Store, digest: Digest, ref: str | None) -> None:
    stands_for = None if ref is None else store.ref(ref)
    if stands_for is not None and stands_for != digest:
        raise TurnedRef(
            f"{ref}: the index said {short(digest)}, and the log says {short(stands_for)}",
            hint="the index is made anew from the log: try again",
        )
