"""``kvg status``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvg.flow.model import default_model
from kvg.flow.records.status import Status

if TYPE_CHECKING:
    from kvg.store import Store


def status(store: Store) -> Status:
    """The store at a glance. Raises ``Corrupt``, ``Untrusted`` when log or trust are not whole."""
    log = store.log
    return Status(
        path=str(store.root),
        origin=log.origin,
        refs=len(store.refs()),
        artifacts=len(store.artifacts()),
        log_size=log.size,
        model=default_model(store),
        models=len(store.config.names("model")),
        keys=len(store.trust.keys),
        remotes=store.config.names("remote"),
        require=store.config.words("deposit.require"),
    )
