"""Renderers of keeping a store in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from kvg.cli.render import Renderer, View
from kvg.cli.render.words import brief, count, size
from kvg.cli.terminal import printable
from kvg.flow.records.upkeep import Collected, FsckSummary, Repaired


def repaired(record: Repaired, view: View) -> Iterator[str]:
    name = brief(record.object) if record.object.startswith("sha256:") else record.object
    where = f" to {record.moved_to}" if record.moved_to else ""
    yield f"repaired: {printable(name)}: {record.action}{printable(where)}\n"


def fsck_summary(record: FsckSummary, view: View) -> Iterator[str]:
    told = "no faults" if not record.faults else view.terminal.out(_faults(record), "red")
    yield (
        f"{count(record.objects, 'object')}, {count(record.artifacts, 'artifact')}, "
        f"log of {record.log_entries:,}: {told}\n"
    )
    if record.unfinished:
        view.aside(
            f"{count(record.unfinished, 'artifact')} to be forgotten, not wholly removed: kvg gc"
        )
    if view.verbose:
        yield f"{size(record.bytes)} read\n"
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


RENDERERS = cast(
    "dict[str, Renderer]",
    {"repaired": repaired, "fsck-summary": fsck_summary, "collected": collected},
)
