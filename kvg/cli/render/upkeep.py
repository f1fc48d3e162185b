"""Renderers of keeping a store in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from kvg.cli.render import Renderer, View
from kvg.cli.render.words import artifacts_and_methods, brief, columns, count, size
from kvg.cli.terminal import printable
from kvg.flow.records.upkeep import (
    Collected,
    Forgotten,
    FsckSummary,
    QuotaState,
    Remaining,
    Repaired,
    Stats,
    Usage,
    UsageSummary,
)


def repaired(record: Repaired, view: View) -> Iterator[str]:
    name = brief(record.object) if record.object.startswith("sha256:") else record.object
    where = f" to {record.moved_to}" if record.moved_to else ""
    yield f"repaired: {printable(name)}: {record.action}{printable(where)}\n"


def fsck_summary(record: FsckSummary, view: View) -> Iterator[str]:
    told = "no faults" if not record.faults else view.terminal.out(_faults(record), "red")
    what = artifacts_and_methods(record.artifacts, record.methods)
    if record.pushed:
        what += f", {record.pushed:,} of others who pushed"
    bad = f" and {record.damaged:,} damaged" if record.damaged else ""
    objects = f"{count(record.objects, 'object')}{bad}"
    yield f"{objects}, {what}, log of {record.log_entries:,}: {told}\n"
    if record.repaired:
        view.aside("what lay behind what was repaired was not looked at: kvg fsck")
    if record.unfinished:
        view.aside(
            f"{count(record.unfinished, 'artifact')} to be forgotten, not wholly removed: kvg gc"
        )
    for digest in record.to_forget:
        told = f"{brief(digest)}: forgetting it was begun and has not ended"
        view.aside(f"{told}: kvg forget {digest[:13]} again")
    if view.verbose:
        yield f"{size(record.bytes)} of raw bytes read\n"
        if record.unreachable is not None:
            yield f"{count(record.unreachable, 'object')} that nothing needs: kvg gc\n"


def _faults(record: FsckSummary) -> str:
    done = f", {record.repaired:,} repaired" if record.repaired else ""
    return f"{count(record.faults, 'fault')}{done}"


def collected(record: Collected, view: View) -> Iterator[str]:
    word = "would remove" if record.dry_run else "removed"
    total = record.bytes + record.temporary_bytes
    left = f", {count(record.temporaries, 'temporary file')}" if record.temporaries else ""
    yield (
        f"{word} {count(record.objects, 'object')}{left}, {size(total)}; "
        f"{count(record.kept, 'object')} kept\n"
    )


def usage(record: Usage, view: View) -> Iterator[str]:
    digest = brief(record.digest) if view.person else record.digest
    sizes = f"{size(record.bytes):>10}  {size(record.own_bytes):>10}"
    yield f"{record.ref or '-':<24}  {sizes}  {digest}\n"


def usage_summary(record: UsageSummary, view: View) -> Iterator[str]:
    parts = [
        f"{count(record.objects, 'object')} {size(record.object_bytes)}",
        f"temporary {size(record.temporary_bytes)}",
        f"log {size(record.log_bytes)}",
        f"index {size(record.index_bytes)}",
        f"reserve {size(record.reserve_bytes)}",
    ]
    if record.lost_found_bytes:
        parts.append(f"lost-found {size(record.lost_found_bytes)}")
    parts.append(f"other {size(record.other_bytes)}")
    if record.quota is not None:
        parts.append(f"quota {size(record.quota)}")
    yield f"store: {size(record.total_bytes)} on disk: {', '.join(parts)}\n"


def stats(record: Stats, view: View) -> Iterator[str]:
    models = ", ".join(f"{name} {n:,}" for name, n in record.models.items()) or "none"
    yield columns(
        (
            ("refs", f"{record.refs:,}"),
            ("artifacts", f"{record.artifacts:,} ({models})"),
            ("tokens", f"{record.tokens:,}"),
            ("pages", f"{record.pages:,}, {size(record.page_bytes)}"),
            ("distinct pages", f"{record.distinct_pages:,}, {size(record.distinct_page_bytes)}"),
            ("pages on disk", size(record.stored_page_bytes)),
            ("attestations", f"{record.attestations:,}"),
            ("log", f"{record.log_entries:,} entries"),
            ("objects", f"{record.objects:,}"),
        )
    )


def quota(record: QuotaState, view: View) -> Iterator[str]:
    if record.limit is None:
        yield f"{size(record.used)} used, no quota\n"
    else:
        yield f"{size(record.used)} of {size(record.limit)} used\n"


def remaining(record: Remaining, view: View) -> Iterator[str]:
    word = "stays" if record.kind == "object" else "holds the same bytes"
    digest = brief(record.object) if view.person else record.object
    yield f"{digest}  {word}: {printable(', '.join(record.users))}\n"


def forgotten(record: Forgotten, view: View) -> Iterator[str]:
    word = "would forget" if record.dry_run else "forgotten"
    names = f"  ({', '.join(record.refs)})" if record.refs else ""
    told = ""
    if not record.dry_run:
        told = "; nothing of it found" if record.traces else "; nothing of it to look for"
        if record.found:
            told = f"; found in {count(record.found, 'file')}"
    if not record.known:
        told = "; not known what it held"
    if record.remaining:
        told += f"; {count(record.remaining, 'object')} shared with others"
    if record.copies:
        told += f"; the same bytes in {count(record.copies, 'object')} of others"
    yield (
        f"{word}: {brief(record.digest)}{names}  {count(record.objects, 'object')}, "
        f"{size(record.bytes)}{told}\n"
    )


RENDERERS = cast(
    "dict[str, Renderer]",
    {
        "repaired": repaired,
        "fsck-summary": fsck_summary,
        "collected": collected,
        "usage": usage,
        "usage-summary": usage_summary,
        "stats": stats,
        "quota": quota,
        "remaining": remaining,
        "forgotten": forgotten,
    },
)
