"""``kvg log``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kvg.errors import Corrupt, NotFound
from kvg.flow.records.stores import LogEntry

if TYPE_CHECKING:
    from kvg.log.entry import Entry
    from kvg.log.log import Log
    from kvg.store import Store

BLOCK = 256


def log(
    store: Store,
    ref: str | None,
    *,
    since: int | None = None,
    receipt: bool = False,
    is_damaged: bool = False,
) -> Iterator[LogEntry]:
    """What happened, newest first: all of it, or what concerns ``ref``.

    ``since`` is Unix time; times are the writer's word. ``receipt`` adds to each entry the proof of
    its place, which holds the entry itself. Where the log may be ``is_damaged``, entries that can't
    be read are passed over. Raises ``NotFound``, ``Corrupt``.
    """
    digests = _digests(store, ref) if ref is not None else frozenset()
    rejections = store.rejections()
    for index, raw, entry in _backwards(store, is_damaged=is_damaged):
        if since is not None and entry.time < since:
            continue
        found = record_of(index, entry)
        if found.digest in rejections:
            found = replace(found, rejected=_failed(store, entry))
        if ref is None or _concerns(found, ref, digests):
            yield _with_receipt(store, found, raw) if receipt else found


def _with_receipt(store: Store, found: LogEntry, raw: bytes) -> LogEntry:
    from kvg.flow.receipt import receipt_of

    return replace(found, receipt=receipt_of(store.log, found.index, raw))


def _failed(store: Store, entry: Entry) -> tuple[str, ...] | None:
    """The gates that did not pass, as the statement about a rejection says."""
    from kvg.log.entry import AttestationEntry
    from kvg.objects.statement import TestResult
    from kvg.store.closure import said_in

    said = said_in(store, entry.envelope) if isinstance(entry, AttestationEntry) else None
    if not isinstance(said, TestResult):
        return None
    told = (item.name.rpartition(": ") for item in said.configuration)
    return tuple(gate for gate, _, result in told if result == said.result)


def _backwards(store: Store, *, is_damaged: bool) -> Iterator[tuple[int, bytes, Entry]]:
    from kvg.log.entry import parse_entry

    stop = store.log.size
    while stop:
        start = (stop - 1) // BLOCK * BLOCK
        block = list(enumerate(_block(store.log, start, stop, is_damaged=is_damaged), start))
        for index, raw in reversed(block):
            yield index, raw, parse_entry(raw, what=f"log entry {index}")
        stop = start


def _block(log: Log, start: int, stop: int, *, is_damaged: bool) -> Sequence[bytes]:
    """The entries [``start``, ``stop``), which lie in one file; none where that ``is_damaged``."""
    try:
        return list(log.read(start, stop))
    except Corrupt:
        if not is_damaged:
            raise
        return ()


def _digests(store: Store, ref: str) -> frozenset[str]:
    from kvg.store import check_ref_name

    check_ref_name(ref)
    moves = store.history(ref)
    if not moves:
        raise NotFound(f"{ref}: no such ref", hint="kvg ls")
    return frozenset(move.digest for move in moves if move.digest is not None)


def _concerns(found: LogEntry, ref: str, digests: frozenset[str]) -> bool:
    return found.ref == ref or (found.ref is None and found.digest in digests)


def record_of(index: int, entry: Entry) -> LogEntry:
    """The entry at ``index`` as a record."""
    from kvg.log import entry as e

    match entry:
        case e.AttestationEntry(time=time, subject=subject, envelope=envelope):
            return LogEntry(index, time, entry.type, digest=subject, detail=envelope)
        case e.RefEntry(time=time, name=name, digest=digest, previous=previous):
            return LogEntry(index, time, entry.type, name, digest, previous)
        case e.TrustEntry(time=time, version=version, digest=digest):
            return LogEntry(index, time, entry.type, digest=digest, detail=f"version {version}")
        case e.RevokeEntry(time=time, keyid=keyid, origin=origin, size=size):
            return LogEntry(index, time, entry.type, keyid=keyid, detail=f"{origin} from {size}")
        case e.ForgetEntry(time=time, digest=digest) | e.PreregEntry(time=time, digest=digest):
            return LogEntry(index, time, entry.type, digest=digest)
        case e.PinEntry(time=time, digest=digest, on=on):
            return LogEntry(index, time, entry.type, digest=digest, detail="on" if on else "off")
        case e.RekeyEntry(time=time, public=public):
            return LogEntry(index, time, entry.type, detail=public)
