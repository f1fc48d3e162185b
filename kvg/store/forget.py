"""Exact unlearning: an artifact's content is removed, and what the log says of it says so.

The tombstone comes first, durably, with the removal of every name; so what a crash leaves has no
name, and ``forget`` again, or gc, finishes it. What other artifacts or running writers need stays,
and is listed. The envelopes about it go too: they name its sources.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from kvg import durable
from kvg.digest import Digest, hex_of, short
from kvg.errors import Corrupt, Incompatible, NotFound
from kvg.frozen import frozen
from kvg.log.entry import AttestationEntry, ForgetEntry, PinEntry, parse_entry
from kvg.objects.page import data_start
from kvg.store.closure import Closure, attested, closure, named_by
from kvg.store.layout import LOST_FOUND, SEARCH
from kvg.store.publish import RefMove
from kvg.store.sweep import sweep_temporaries

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.log.entry import Entry
    from kvg.store.store import Store

WRITER = "a running command"
STORE = "the store"


@frozen
class Kept:
    """An object of the artifact that stays: ``users`` are the refs or digests that need it."""

    digest: Digest
    users: tuple[str, ...]


@frozen
class Plan:
    """What forgetting an artifact would do: remove ``objects``, in this order, and ``refs``.

    ``content`` are those of the objects that hold what was read or computed, each with the offset
    where that begins. ``is_known`` is False when the manifest can't be read any more: then its
    pages can't be told.
    """

    digest: Digest
    refs: tuple[str, ...]
    objects: tuple[Digest, ...]
    content: tuple[tuple[Digest, int], ...]
    kept: tuple[Kept, ...]
    is_known: bool


@frozen
class Removed:
    """What was removed; ``log_index`` is that of the tombstone, None when it was there before."""

    objects: int
    bytes: int
    log_index: int | None


def plan_forget(store: Store, digest: Digest) -> Plan:
    """What forgetting ``digest`` comes to now.

    Raises ``NotFound`` when it is no artifact of this store, ``Corrupt`` when another artifact that
    the log keeps can't be read: nobody knows what that one shares.
    """
    envelopes = tuple(_envelopes_of(store, digest))
    found, objects = _objects_of(store, digest, envelopes)
    if not envelopes and digest not in store.once_named():
        raise NotFound(f"{short(digest)}: no artifact of this store", hint="kvg ls")
    users = users_of(store, objects, besides=digest)
    there = [item for item in objects if store.objects.has(item)]
    gone = tuple(item for item in there if item not in users)
    return Plan(
        digest=digest,
        refs=store.refs_of(digest),
        objects=gone,
        content=tuple(_content(gone, {*envelopes, digest}, found)),
        kept=tuple(Kept(item, tuple(sorted(users[item]))) for item in there if item in users),
        is_known=found is not None or digest in store.methods(),
    )


def remove_for_good(store: Store, plan: Plan, *, now: int) -> Removed:
    """Carry ``plan`` out, under the exclusive lock. Raises ``Conflict``, ``NoSpace``."""
    with store.lock.exclusive():
        plan = plan_forget(store, plan.digest)  # as it is now
        published = store.publish(list(_entries(store, plan, now)), now=now)
        tombstones = [i for i, entry in published.entries if isinstance(entry, ForgetEntry)]
        size = store.objects.remove_all([item for item in plan.objects if item != plan.digest])
        size += store.objects.remove_all([plan.digest])
        durable.remove_all(_set_aside(store, plan.objects))
        if (store.root / SEARCH).is_dir():
            durable.remove_tree(store.root / SEARCH)  # it holds text; what is left is found again
        sweep_temporaries(store)
    return Removed(len(plan.objects), size, tombstones[0] if tombstones else None)


def _entries(store: Store, plan: Plan, now: int) -> Iterator[Entry | RefMove]:
    for name in plan.refs:
        yield RefMove(name, None)
    if plan.digest in store.pins():
        yield PinEntry(now, plan.digest, False)
    if plan.digest not in store.forgotten():
        yield ForgetEntry(now, plan.digest)


def _envelopes_of(store: Store, digest: Digest) -> Iterator[Digest]:
    """Every envelope that was ever logged about ``digest``, also before it was forgotten once."""
    found: dict[Digest, None] = {}
    for index, raw in enumerate(store.log.read()):
        entry = parse_entry(raw, what=f"log entry {index}")
        if isinstance(entry, AttestationEntry) and entry.subject == digest:
            found[entry.envelope] = None
    yield from found


def _objects_of(
    store: Store, digest: Digest, envelopes: Sequence[Digest]
) -> tuple[Closure | None, tuple[Digest, ...]]:
    """What the artifact is made of, the manifest last; no closure where it can't be read."""
    try:
        found = closure(store, digest, envelopes=envelopes)
        return found, found.objects()
    except (Corrupt, Incompatible):
        named = [item for envelope in envelopes for item in named_by(store, envelope)]
        return None, (*dict.fromkeys(named), *envelopes, digest)


def _content(
    objects: Iterable[Digest], documents: Collection[Digest], found: Closure | None
) -> Iterator[tuple[Digest, int]]:
    """``objects`` but for ``documents``, and where in a page its header ends."""
    pages = found.manifest.pages if found else ()
    starts = {
        page.digest: data_start(found.manifest.group(page.group), page.n_tokens)
        for page in pages
        if found
    }
    for digest in objects:
        if digest not in documents:
            yield digest, starts.get(digest, 0)


def users_of(
    store: Store, objects: Iterable[Digest], *, besides: Digest
) -> dict[Digest, frozenset[str]]:
    """Who but ``besides`` needs which of ``objects``: refs, digests of artifacts, running writers.

    Raises ``Corrupt`` when an artifact that the log keeps can't be read.
    """
    wanted = frozenset(objects)
    users: dict[Digest, frozenset[str]] = {}
    for name, needed in _needs_of_others(store, besides):
        for item in wanted.intersection(needed):
            users[item] = users.get(item, frozenset()) | {name}
    return users


def _needs_of_others(store: Store, digest: Digest) -> Iterator[tuple[str, Iterable[Digest]]]:
    yield WRITER, store.live_roots()
    yield STORE, [found for _, found in store.trust_versions()]
    yield STORE, store.preregistered() - {digest}
    names = {found: name for name, found in store.refs().items()}
    kept, methods = {*names, *store.pins()}, store.methods()
    others = {*kept, *methods, *store.artifacts(), *store.once_named()} - {digest}
    for other in sorted(others):
        name = names.get(other, short(other))
        if other in methods:
            yield name, (other, *attested(store, other))
        elif store.objects.has(other):
            try:
                yield name, closure(store, other).objects()
            except (Corrupt, Incompatible) as error:
                if other in kept:
                    raise Corrupt(
                        f"{name}: cannot tell what it shares: {error.message}", hint="kvg fsck"
                    ) from None


def _set_aside(store: Store, objects: Iterable[Digest]) -> Iterator[Path]:
    """Damaged copies of ``objects`` that a repair moved away."""
    folder = store.root / LOST_FOUND
    names = {hex_of(item) for item in objects}
    try:
        found = sorted(os.listdir(folder))
    except FileNotFoundError:
        return
    yield from (folder / name for name in found if name.partition(".")[0] in names)
