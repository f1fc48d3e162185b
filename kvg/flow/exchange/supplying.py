"""Pages on demand: a store without pages takes those of an artifact when one of them is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvg.digest import short
from kvg.errors import RemoteFailed
from kvg.flow.exchange.places import SECTION, find_place, opened
from kvg.flow.exchange.receiving import Receiver

if TYPE_CHECKING:
    from kvg.digest import Digest
    from kvg.flow.exchange.places import Place
    from kvg.flow.settings import Settings
    from kvg.objects.manifest import Manifest
    from kvg.store import Store


def supply(store: Store, settings: Settings, manifest: Manifest, what: str) -> None:
    """Bring every page of ``manifest`` that is not here from the remotes that keep them.

    Each is checked before it is part of the store, as in a fetch. Raises ``RemoteFailed`` naming
    what no remote has, ``Corrupt`` on damaged ones.
    """
    for name in sorted(store.config.names(SECTION)):
        place = find_place(store, name)
        if not place.has_pages and absent(store, manifest):
            _bring(store, settings, place, manifest, what)
    still = absent(store, manifest)
    if still:
        raise RemoteFailed(
            f"{what}: {len(still)} pages are not here, and no remote has them: {short(still[0])}",
            hint="kvg remote list",
        )


def absent(store: Store, manifest: Manifest) -> tuple[Digest, ...]:
    """The pages that are not here, each once."""
    pages = dict.fromkeys(page.digest for page in manifest.pages)
    return tuple(digest for digest in pages if not store.objects.has(digest))


def _bring(store: Store, settings: Settings, place: Place, manifest: Manifest, what: str) -> None:
    with (
        opened(place, settings) as remote,
        store.exchange.exclusive(),
        store.pending() as pending,
        settings.report.task("pages", 0, "B") as task,
    ):
        there = set(absent(store, manifest)) - remote.missing(absent(store, manifest))
        receiver = Receiver(store, settings, remote, pending, task)
        receiver.receive_pages(manifest, there, what=what)
