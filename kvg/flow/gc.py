"""``kvg gc``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvg.flow.records.upkeep import Collected
from kvg.store.sweep import sweep

if TYPE_CHECKING:
    from kvg.flow.settings import Settings
    from kvg.store import Store


def gc(store: Store, settings: Settings) -> Collected:
    """Remove what nothing needs any more, and what writers that ended left behind.

    Raises ``Corrupt`` when it can't be told what something needs, ``Conflict``.
    """
    total = store.objects.count()
    with settings.report.task("collect", total, "objects") as task:
        done = sweep(store, dry_run=settings.dry_run, advance=task.advance)
    return Collected(
        objects=done.objects,
        bytes=done.bytes,
        temporaries=done.temporaries,
        temporary_bytes=done.temporary_bytes,
        kept=done.kept,
        dry_run=settings.dry_run,
    )
