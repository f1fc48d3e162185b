"""``kvg reindex``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvg.flow.records.stores import Reindexed

if TYPE_CHECKING:
    from kvg.store import Store


def reindex(store: Store) -> Reindexed:
    """Rebuild the index from the files. Raises ``Corrupt``, ``Untrusted``, ``NoSpace``."""
    from kvg.verify.check import artifacts_there

    entries = store.reindex()
    return Reindexed(
        entries=entries,
        refs=len(store.refs()),
        artifacts=len(artifacts_there(store)),
        objects=sum(1 for _ in store.objects.all()),
    )
