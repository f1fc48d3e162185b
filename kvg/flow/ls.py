"""``kvg ls``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kvg.flow.attested import attested
from kvg.flow.freshness import stale_now
from kvg.flow.records.refs import RefEntry
from kvg.verify.traced import said_under

if TYPE_CHECKING:
    from kvg.digest import Digest
    from kvg.flow.settings import Settings
    from kvg.store import Store
    from kvg.store.outline import Outline


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
    schema version; ``graftable`` those whose model is registered here and whose engine is one that
    this machine was seen to compute as (the model alone decides where no session was opened yet).
    """
    pins, models = store.pins(), models_by_fingerprint(store)
    refs = store.refs() if everything else store.own_refs()
    machine = _Machine(settings, models)
    if graftable and not models:
        settings.report.warning(
            "no model is registered here, so nothing can be grafted: kvg model add NAME PATH"
        )
    trust, log, moves = store.trust, store.log, store.moves()
    for name, outline in store.outlines(dict(sorted(refs.items()))):
        digest = refs[name]
        if graftable and not machine.can_graft(outline):
            continue
        found = said_under(name, attested(store, digest, trust, log), trust)
        reason = stale_now(store, settings.cwd, found)
        if stale and reason is None:
            continue
        yield RefEntry(
            ref=name,
            digest=digest,
            tokens=outline.tokens,
            pages=outline.pages,
            model=models.get(outline.model),
            architecture=outline.architecture,
            reference=outline.reference,
            gates=found.gates,
            pinned=digest in pins,
            previous=moves[name] - 1,
            stale=reason,
            unenclosed=found.unenclosed,
        )


class _Machine:
    """What can be grafted here, as far as is known without loading a model."""

    def __init__(self, settings: Settings, models: Mapping[str, str]) -> None:
        self._settings = settings
        self._models = models
        self._engines: dict[str, frozenset[Digest] | None] = {}

    def can_graft(self, outline: Outline) -> bool:
        """Whether the model is registered and the engine is one of this machine's."""
        model = outline.model
        if model not in self._models:
            return False
        if model not in self._engines:
            from kvg.flow.engines import known_engines

            self._engines[model] = known_engines(self._settings, model)
            if self._engines[model] is None:
                self._settings.report.warning(
                    f"{self._models[model]}: no session of it was opened on this machine yet, so "
                    "only the model is compared; kvg doctor tells which engine this is"
                )
        known = self._engines[model]
        return known is None or outline.engine in known


def models_by_fingerprint(store: Store) -> dict[str, str]:
    """The names of the registered models, by fingerprint; the first registered wins."""
    names: dict[str, str] = {}
    for name in store.config.names("model"):
        fingerprint = store.config.table("model", name).get("fingerprint")
        if isinstance(fingerprint, str):
            names.setdefault(fingerprint, name)
    return names
