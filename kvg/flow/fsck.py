"""``kvg fsck``: a whole store against itself, without a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

from kvg.flow.records.findings import Finding
from kvg.flow.records.upkeep import FsckSummary, Repaired
from kvg.verify import fsck as checks
from kvg.verify.check import Finding as Fault

if TYPE_CHECKING:
    from kvg.flow.settings import Settings
    from kvg.store import Store


def fsck(
    store: Store, settings: Settings, *, repair: bool = False
) -> Iterator[Finding | Repaired | FsckSummary]:
    """Every fault, what was done about it, then a summary; it goes on after each fault.

    ``repair`` moves bad objects into ``lost-found`` and rebuilds the index. Raises ``Conflict``.
    """
    total = sum(1 for _ in store.objects.all())
    with settings.report.task("check", total, "objects") as task:
        for found in checks.fsck(store, repair=repair, threads=settings.jobs, advance=task.advance):
            if isinstance(found, Fault):
                yield Finding(found.code, found.kind, found.object, found.message, found.hint)
            elif isinstance(found, checks.Repaired):
                yield Repaired(found.object, found.action, found.moved_to)
            else:
                yield FsckSummary(*(getattr(found, item.name) for item in fields(FsckSummary)))
