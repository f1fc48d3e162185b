"""``kvg ls``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvg.flow.attested import attested
from kvg.flow.freshness import contract_of, stale_reason
from kvg.flow.records.refs import RefEntry

if TYPE_CHECKING:
    from kvg.flow.settings import Settings
    from kvg.store import Store


def ls(
    store: Store,
    settings: Settings,
    *,
    stale: bool = False,
    graftable: bool = False,
    everything: bool = False,
) -> Iterator[RefEntry]:
    """Every ref of one's own, by name; ``everything`` adds those that say what remotes had.

    ``stale`` keeps those past their validity, with a dependency that has changed, or of another
    schema version; ``graftable`` those whose model is registered here.
    """
    pins, models = store.pins(), models_by_fingerprint(store)
    refs = store.refs() if everything else store.own_refs()
    for name, digest in sorted(refs.items()):
        manifest = store.manifest(digest, what=name)
        if graftable and manifest.model.fingerprint not in models:
            continue
        found = attested(store, digest)
        reason = stale_reason(store, settings.cwd, contract_of(found.provenance))
        if stale and reason is None:
            continue
        yield RefEntry(
            ref=name,
            digest=digest,
            tokens=manifest.count,
            pages=len(manifest.pages),
            model=models.get(manifest.model.fingerprint),
            architecture=manifest.model.architecture,
            reference=manifest.engine.reference,
            gates=found.gates,
            pinned=digest in pins,
            previous=len(store.history(name)) - 1,
            stale=reason,
        )


def models_by_fingerprint(store: Store) -> dict[str, str]:
    """The names of the registered models, by fingerprint; the first registered wins."""
    names: dict[str, str] = {}
    for name in store.config.names("model"):
        fingerprint = store.config.table("model", name).get("fingerprint")
        if isinstance(fingerprint, str):
            names.setdefault(fingerprint, name)
    return names
