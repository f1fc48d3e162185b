"""``kvg quota``: a hard limit on what a store takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvg.flow.records.upkeep import QuotaState
from kvg.store.quota import QUOTA_KEY

if TYPE_CHECKING:
    from kvg.flow.settings import Settings
    from kvg.store import Store


def quota(store: Store) -> QuotaState:
    """The quota and what of it is used, counted now."""
    return QuotaState(store.quota.limit, store.quota.used())


def set_quota(store: Store, settings: Settings, limit: int | None) -> QuotaState:
    """Set the quota to ``limit`` bytes, or lift it. One that is exceeded already refuses all puts.

    Raises ``Conflict``.
    """
    if settings.dry_run:
        settings.report.notice("dry run: nothing was changed")
        return QuotaState(limit, store.quota.used())
    with store.lock.exclusive():
        if limit is None:
            store.config.unset(QUOTA_KEY)
        else:
            store.config.set(QUOTA_KEY, limit)
        used = store.quota.recount()
    if limit is not None and used > limit:
        settings.report.warning(f"{used} bytes are used already: nothing can be stored; kvg gc")
    return QuotaState(limit, used)
