"""``kvg model list``, ``show`` and ``default``: the registered models, without loading any.

A model is the table ``model.NAME`` of the store's configuration: ``path``, ``fingerprint``,
``dtype``, ``architecture``, ``parameters``, and where it applies ``adapter``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvg.digest import parse_digest
from kvg.errors import NotFound

if TYPE_CHECKING:
    from kvg.flow.records.models import ModelEntry
    from kvg.flow.settings import Settings
    from kvg.store import Store

SECTION = "model"
DEFAULT_KEY = "default.model"


def list_models(store: Store) -> Iterator[ModelEntry]:
    """Every registered model, in the order in which they were registered."""
    for name in store.config.names(SECTION):
        yield show_model(store, name)


def show_model(store: Store, name: str) -> ModelEntry:
    """One registered model. Raises ``NotFound``; ``Corrupt`` when its table was damaged."""
    from kvg.flow.records.models import ModelEntry

    table = store.config.table(SECTION, name)
    parameters = table.get("parameters")
    return ModelEntry(
        name=name,
        path=str(table.get("path", "")),
        architecture=str(table.get("architecture", "")),
        parameters=parameters if isinstance(parameters, int) else None,
        dtype=str(table.get("dtype", "")),
        fingerprint=parse_digest(table.get("fingerprint"), what=f"model {name}: fingerprint"),
        default=name == default_model(store),
        adapter=str(table["adapter"]) if "adapter" in table else None,
    )


def default_model(store: Store) -> str | None:
    """The model that is used when none is named: the configured one, else the first."""
    names = store.config.names(SECTION)
    configured = store.config.text(DEFAULT_KEY)
    return configured if configured is not None else (names[0] if names else None)


def set_default_model(store: Store, settings: Settings, name: str) -> ModelEntry:
    """Use ``name`` when no model is named. Raises ``NotFound``."""
    if name not in store.config.names(SECTION):
        raise NotFound(f"{name}: no such model", hint="kvg model list")
    if not settings.tell_dry_run():
        store.config.set(DEFAULT_KEY, name)
    return show_model(store, name)
