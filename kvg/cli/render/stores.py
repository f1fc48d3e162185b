"""Renderers of a store as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from kvg.cli.render import Renderer, View
from kvg.cli.render.words import brief, count, listed, when
from kvg.cli.terminal import on_one_line, printable
from kvg.flow.records.stores import (
    CheckedReceipt,
    Cosignature,
    Initialised,
    LogCheckpoint,
    LogEntry,
    Reindexed,
)


def store(record: Initialised, view: View) -> Iterator[str]:
    word = "initialised" if record.created else "already there:"
    yield f"{word} {record.path}\n"


def log_entry(record: LogEntry, view: View) -> Iterator[str]:
    kind = record.entry if record.rejected is None else "rejected"
    parts = [f"{record.index:>6}", when(record.time), f"{kind:<11}"]
    if record.ref is not None:
        parts.append(record.ref)
    if record.entry == "ref":
        before = brief(record.previous) if record.previous else "new"
        parts.append(f"{before} → {brief(record.digest) if record.digest else 'removed'}")
    elif record.digest is not None:
        parts.append(brief(record.digest) if view.person else record.digest)
    if record.keyid is not None:
        parts.append(record.keyid[:6])
    if record.detail is not None:
        parts.append(on_one_line(record.detail))
    if record.rejected is not None:
        parts.append(f"by {listed(record.rejected)}")
    yield "  ".join(parts) + "\n"
    if record.receipt is not None:
        yield record.receipt + "\n"


def receipt(record: CheckedReceipt, view: View) -> Iterator[str]:
    what = record.ref or (brief(record.digest) if record.digest else "")
    place = f"entry {record.index:,} of {record.size:,} in log {record.origin}"
    yield f"{'  '.join(word for word in (record.entry, what) if word)}: proved to be {place}\n"


def cosignature(record: Cosignature, view: View) -> Iterator[str]:
    time = f"{when(record.time)} by its own clock"
    yield f"witnessed at size {record.size:,} by {printable(record.name)}, {time}\n"


def checkpoint(record: LogCheckpoint, view: View) -> Iterator[str]:
    yield record.note
    for found in record.witnesses:
        view.aside("".join(cosignature(found, view)).strip())
    if not record.witnesses:
        view.aside("witnessed by nobody: this log proves nothing against its own owner")
    if record.witnesses and record.silent:
        names = ", ".join(map(printable, record.silent))
        view.aside(f"no word of {names} there: none was given, or it was lost before it was seen")


def reindexed(record: Reindexed, view: View) -> Iterator[str]:
    entries = f"{record.entries:,} log entries"
    yield (
        f"reindexed: {entries}, {count(record.refs, 'ref')}, "
        f"{count(record.artifacts, 'artifact')}, {count(record.objects, 'object')}\n"
    )


RENDERERS = cast(
    "dict[str, Renderer]",
    {
        "store": store,
        "log-entry": log_entry,
        "receipt": receipt,
        "checkpoint": checkpoint,
        "cosignature": cosignature,
        "reindexed": reindexed,
    },
)
