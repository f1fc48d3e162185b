"""``kvg fetch``: what a remote has, verified, under ``REMOTE/REF``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kvg.flow.exchange.contact import choose, trust_all
from kvg.flow.exchange.fetching import Fetch, Fetched
from kvg.flow.exchange.places import find_place, opened
from kvg.flow.exchange.telling import counted
from kvg.flow.records.exchange import State

if TYPE_CHECKING:
    from kvg.flow.records import Record
    from kvg.flow.settings import Settings
    from kvg.store import Store


def fetch(
    store: Store,
    settings: Settings,
    remote: str | None = None,
    refs: Sequence[str] = (),
    *,
    trust: Sequence[str] = (),
) -> Iterator[Record]:
    """Bring ``refs`` (all without any) of ``remote`` here; one's own refs stay as they are.

    Nothing is visible before every byte, signature, log and pointer of it holds. Yields what is
    wrong with single refs while the others go on, then the ``transfer``. ``trust`` names keys on
    offer to trust first. Raises ``NotFound``, ``RemoteFailed``, ``Untrusted``, ``NoSpace``.
    """
    place = find_place(store, remote)
    with opened(place, settings) as there, store.exchange.exclusive():
        there.check()
        again = f"kvg fetch {place.name}"
        trusted = (
            trust_all(store, settings, choose(there, trust, None, again=again)) if trust else None
        )
        work = Fetch(store, settings, place, there, pages=place.has_pages, trust=trusted)
        yield from counted(_fetched(work, settings, refs))


def _fetched(work: Fetch, settings: Settings, refs: Sequence[str]) -> Iterator[Record]:
    yield from work.run(refs or None)
    settings.tell_dry_run()
    yield work.transfer("fetch", [item.done(state_of(item)) for item in work.fetched])


def state_of(item: Fetched) -> State:
    """What became of the tracking ref."""
    if item.before is None:
        return "new"
    return "unchanged" if item.before == item.ref.digest else "moved"
