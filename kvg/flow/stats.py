"""``kvg stats``: the store in numbers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kvg.flow.ls import models_by_fingerprint
from kvg.flow.records.upkeep import Stats
from kvg.verify.check import artifacts_there

if TYPE_CHECKING:
    from kvg.digest import Digest
    from kvg.store import Store


def stats(store: Store) -> Stats:
    """Count artifacts, tokens and pages, and what sharing pages saves. Raises ``Corrupt``."""
    names = models_by_fingerprint(store)
    models: Counter[str] = Counter()
    tokens = pages = page_bytes = 0
    sizes: dict[Digest, int] = {}
    artifacts = artifacts_there(store)
    for digest in sorted(artifacts):
        if not store.objects.has(digest):
            continue
        manifest = store.manifest(digest)
        fingerprint = manifest.model.fingerprint
        models[names.get(fingerprint) or manifest.model.architecture] += 1
        tokens += manifest.count
        pages += len(manifest.pages)
        page_bytes += sum(page.size for page in manifest.pages)
        sizes.update((page.digest, page.size) for page in manifest.pages)
    stored = (store.objects.stored_size(item) for item in sizes if store.objects.has(item))
    return Stats(
        refs=len(store.refs()),
        artifacts=len(artifacts),
        tokens=tokens,
        pages=pages,
        distinct_pages=len(sizes),
        page_bytes=page_bytes,
        distinct_page_bytes=sum(sizes.values()),
        stored_page_bytes=sum(stored),
        attestations=len(store.logged_envelopes()),
        log_entries=store.log.size,
        objects=sum(1 for _ in store.objects.all()),
        models=dict(sorted(models.items())),
    )
