"""Pages on demand: a store without pages takes those of an artifact when one of them is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvg.digest import short
from kvg.errors import Corrupt, KvgError, NotFound, RemoteFailed, UsageError
from kvg.flow.exchange.places import SECTION, find_place, opened
from kvg.flow.exchange.receiving import MissingObjects, Receiver

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvg.digest import Digest
    from kvg.flow.exchange.places import Place
    from kvg.flow.settings import Settings
    from kvg.objects.manifest import Manifest
    from kvg.store import Store


def supply(store: Store, settings: Settings, manifest: Manifest, what: str) -> None:
    """Bring every page of ``manifest`` that is not here from the remotes that keep them.

    Each is checked before it is part of the store, as in a fetch. Raises ``RemoteFailed`` naming
    what no remote has, and which could not be asked, ``Corrupt`` on damaged ones.
    """
    failed: dict[str, KvgError] = {}
    for name in keepers(store):
        if absent(store, manifest):
            place = find_place(store, name)
            try:
                _bring(store, settings, place, manifest, what)
            except MissingObjects as error:
                failed[name] = MissingObjects(f"{what} on {name}", error.missing)
                failed[name].hint = place.repair
            except (NotFound, RemoteFailed, UsageError) as error:
                failed[name] = error
    still = absent(store, manifest)
    if still:
        raise _told(still, failed, what)


def keepers(store: Store) -> tuple[str, ...]:
    """The remotes that keep pages until they are read here."""
    names = sorted(store.config.names(SECTION))
    return tuple(name for name in names if not find_place(store, name).has_pages)


def _told(
    still: Sequence[Digest], failed: Mapping[str, KvgError], what: str
) -> Corrupt | RemoteFailed:
    """Why pages were not had: damage there, who could not be asked, or nobody has them."""
    for error in failed.values():
        if isinstance(error, Corrupt):
            return error
    words = f"{what}: {len(still)} pages are not here"
    for name, error in failed.items():
        return RemoteFailed(f"{words}, and {name} could not be asked: {error}", hint=error.hint)
    return Corrupt(
        f"{words}, and no remote has them: {short(still[0])}",
        hint="who has them whole pushes them anew: kvg push --verify",
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
        remote.check()
        there = set(absent(store, manifest)) - remote.missing(absent(store, manifest))
        receiver = Receiver(store, settings, remote, pending, task)
        receiver.receive_pages(manifest, there, what=what)
