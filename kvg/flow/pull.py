"""``kvg pull``: fetch, and move one's own refs along where they did not go another way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from kvg.digest import short
from kvg.errors import Conflict, UsageError
from kvg.flow.exchange.contact import choose, trust_all
from kvg.flow.exchange.fetching import Fetch, Fetched
from kvg.flow.exchange.places import find_place, opened
from kvg.flow.exchange.reading import told
from kvg.flow.exchange.standing import is_followed, was_here
from kvg.flow.exchange.telling import counted
from kvg.flow.lock import read_locked, unnamed
from kvg.flow.records.exchange import Direction, State, TransferRef
from kvg.store import ANY, RefMove

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.flow.records import Record
    from kvg.flow.records.findings import Finding
    from kvg.flow.settings import Settings
    from kvg.store import Store


def pull(
    store: Store,
    settings: Settings,
    remote: str | None = None,
    refs: Sequence[str] = (),
    *,
    trust: Sequence[str] = (),
    lock: Path | None = None,
) -> Iterator[Record]:
    """Fetch ``refs`` (all without any) of ``remote`` and move one's own, fast-forward only.

    A ref moves if it was not changed here since, or if the remote's log knows the value here as
    an earlier one; one that moved on here from what is there stays. With ``lock``, a lock file, its
    refs get what it says, also where the remote has gone on, as long as the publisher's log knows
    that value; one of ``refs`` that it does not name is not taken, and told. Yields and raises as
    ``fetch``; a ref that went another way is a ``Conflict``.
    """
    place = find_place(store, remote)
    with opened(place, settings) as there, store.exchange.exclusive():
        there.check()
        again = f"kvg pull {place.name}"
        trusted = (
            trust_all(store, settings, choose(there, trust, None, again=again)) if trust else None
        )
        work = Fetch(store, settings, place, there, pages=place.has_pages, trust=trusted)
        names: Sequence[str] | None = refs or None
        unsaid: Iterator[Finding] = iter(())
        if lock is not None:
            work.locked = read_locked(settings, lock)
            names = [name for name in work.locked if not refs or name in refs]
            unsaid = unnamed(store, [name for name in refs if name not in work.locked], lock)
        yield from counted(chain(unsaid, take(work, store, settings, names)))


def take(
    work: Fetch,
    store: Store,
    settings: Settings,
    names: Sequence[str] | None,
    direction: Direction = "pull",
) -> Iterator[Record]:
    """Fetch ``names`` and move one's own refs along; see ``pull``."""
    yield from work.run(names)
    done: list[TransferRef] = []
    moves: list[RefMove] = []
    for item in work.fetched:
        if work.place.has_pages and not work.has_pages:  # a ref stands for something whole
            done.append(item.done("attested"))
            continue
        try:
            store.check_own_name(item.ref.name)
            state, here = _state(work, store, item), store.ref(item.ref.name)
        except (Conflict, UsageError) as error:
            yield told(error, item.ref.name)
            continue
        if state in ("new", "moved"):
            moves.append(RefMove(item.ref.name, item.ref.digest, here))
        done.append(TransferRef(item.ref.name, item.ref.digest, here, state, item.signers))
    if not settings.tell_dry_run() and moves:
        moved = {move.name for move in moves}
        store.publish([*moves, *_went_on(work, [i for i in work.fetched if i.ref.name in moved])])
    yield work.transfer(direction, done)


def _went_on(work: Fetch, taken: Sequence[Fetched]) -> Iterator[RefMove]:
    """That the remote had, and went on from, each value that a lock file gave a ref of ``taken``:
    the ref is behind then, as this log says it, and no push takes the remote back. One of which
    nothing newer was seen here can't be pushed over either."""
    for item in taken:
        if not item.ref.is_newest and item.before not in (None, item.ref.digest):
            tracked = work.place.tracking(item.ref.name)
            yield from (RefMove(tracked, digest, ANY) for digest in (item.ref.digest, item.before))


def _state(work: Fetch, store: Store, item: Fetched) -> State:
    """What is to become of one's own ref. Raises ``Conflict`` where it went another way."""
    name, there = item.ref.name, item.ref.digest
    here, tracked = store.ref(name), work.place.tracking(item.ref.name)
    if here is None:
        return "new"
    if here == there:
        return "unchanged"
    is_locked = name in work.locked  # then it is not enough to be ahead
    if item.ref.pointer.origin == store.log.origin and not is_locked:
        return "unchanged"  # this store moved it last, there and here: a push brings it there
    if is_followed(store, name, tracked):
        return "moved"
    is_past = here in work.reader.log(item.ref.pointer.origin).past.get(name, ())
    if was_here(store, name, there) and not is_locked:
        if work.place.is_tracked or not is_past:
            return "unchanged"  # this store is ahead
    elif is_past:
        return "moved"
    theirs = tracked if work.place.is_tracked else short(there)
    raise Conflict(
        f"{name}: {short(here)} here and {short(there)} on {work.place.name} went different ways",
        hint=f"look with kvg diff {name} {theirs}; take theirs: kvg tag -f {name} {theirs}; "
        f"keep yours: after that, kvg tag -f {name} {short(here)}, and push",
    )
