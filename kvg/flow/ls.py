"""``kvg ls``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kvg.digest import Digest, Sha256Stream
from kvg.flow.attested import attested
from kvg.flow.records.refs import RefEntry

if TYPE_CHECKING:
    from kvg.flow.settings import Settings
    from kvg.store import Store
    from kvg.verify.judgement import Judgement


def ls(
    store: Store,
    settings: Settings,
    *,
    stale: bool = False,
    graftable: bool = False,
    everything: bool = False,
) -> Iterator[RefEntry]:
    """Every ref of one's own, by name; ``everything`` adds those that say what remotes had.

    ``stale`` keeps those past their validity or with a dependency that has changed; ``graftable``
    those whose model is registered here.
    """
    pins, models = store.pins(), models_by_fingerprint(store)
    refs = store.refs() if everything else store.own_refs()
    for name, digest in sorted(refs.items()):
        manifest = store.manifest(digest, what=name)
        if graftable and manifest.model.fingerprint not in models:
            continue
        found = attested(store, digest)
        if stale and not is_stale(found, settings.cwd, int(time.time())):
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
        )


def models_by_fingerprint(store: Store) -> dict[str, str]:
    """The names of the registered models, by fingerprint; the first registered wins."""
    names: dict[str, str] = {}
    for name in store.config.names("model"):
        fingerprint = store.config.table("model", name).get("fingerprint")
        if isinstance(fingerprint, str):
            names.setdefault(fingerprint, name)
    return names


def is_stale(found: Judgement, cwd: Path, now: int) -> bool:
    """Whether the trusted deposit is past its validity or depends on a file that has changed."""
    said = found.provenance
    return said is not None and (
        (said.valid_until is not None and said.valid_until < now)
        or any(_has_changed(cwd / part.name, part.digest) for part in said.depends)
    )


def _has_changed(path: Path, digest: Digest | None) -> bool:
    """Whether the file is here with other bytes; one that is not here says nothing."""
    if digest is None:
        return False
    stream = Sha256Stream()
    try:
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                stream.update(block)
    except OSError:
        return False
    return stream.digest() != digest
