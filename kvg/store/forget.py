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
from kvg.digest import PREFIX, Digest, hex_of, is_digest, short
from kvg.errors import Corrupt, Incompatible, KvgError, NotFound
from kvg.frozen import frozen
from kvg.log.entry import AttestationEntry, ForgetEntry, PinEntry, parse_entry
from kvg.objects.page import data_start
from kvg.store.closure import MAX_ENVELOPE_BYTES, Closure, attested, closure, idle_pins, named_by
from kvg.store.layout import FORGOTTEN as REMOVED
from kvg.store.layout import LOST_FOUND, SEARCH
from kvg.store.publish import RefMove
from kvg.store.quota import size_of
from kvg.store.refs import digests
from kvg.store.sweep import Reach, sweep_temporaries
from kvg.store.tables import FORGOTTEN

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.log.entry import Entry
    from kvg.store.store import Store

_MAX_INDEX_DIGITS = 16
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
    where that begins; ``aside`` the files in ``lost-found`` that hold damaged copies. ``is_known``
    is False when the manifest or an attestation can't be read any more: then it can't be told what
    else it held.
    """

    digest: Digest
    refs: tuple[str, ...]
    objects: tuple[Digest, ...]
    content: tuple[tuple[Digest, int], ...]
    kept: tuple[Kept, ...]
    aside: tuple[str, ...]
    is_known: bool


@frozen
class Removed:
    """What was removed; ``log_index`` is that of the tombstone, None when it was there before.

    ``is_known`` is False when it can't be told whether that was all.
    """

    objects: int
    bytes: int
    log_index: int | None
    is_known: bool


@frozen
class Unclaimed:
    """What lies in a store and is of nothing that it keeps: objects, files in ``lost-found``."""

    objects: int
    aside: tuple[str, ...]


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
    aside = _set_aside(store, objects)
    there = [item for item in objects if store.objects.has(item)]
    found_there = [item for item in objects if item in aside or store.objects.has(item)]
    gone = tuple(item for item in there if item not in users)
    return Plan(
        digest=digest,
        refs=store.refs_of(digest),
        objects=gone,
        content=tuple(_content(gone, {*envelopes, digest}, found)),
        kept=tuple(Kept(item, tuple(sorted(users[item]))) for item in found_there if item in users),
        aside=tuple(name for item in objects if item not in users for name in aside.get(item, ())),
        is_known=_is_known(store, digest, found),
    )


def _is_known(store: Store, digest: Digest, found: Closure | None) -> bool:
    """Whether all that the artifact was made of could be read, or is known to be gone already."""
    if found is None and digest not in store.methods():
        return _was_removed(store, digest)
    return all(_is_readable(store, item.envelope) for item in store.attestations(digest))


def _is_readable(store: Store, envelope: Digest) -> bool:
    try:
        store.objects.read(envelope, what=short(envelope), limit=MAX_ENVELOPE_BYTES)
    except (Corrupt, Incompatible):
        return False
    return True


def _was_removed(store: Store, digest: Digest) -> bool:
    """Whether all of it was removed with the tombstone that is in force.

    Only a file can tell: what is gone may also have been lost before.
    """
    tombstone = _tombstone(store, digest)
    try:
        with open(_removal(store, digest), "rb", opener=durable.plain) as file:
            return file.read(64) == tombstone
    except (OSError, Corrupt):
        return False


def _note_removed(store: Store, digest: Digest) -> None:
    """Keep that all of it was removed; where that can't be written, it is not known again.

    What is done is done: no failure here is one of the removal.
    """
    tombstone = _tombstone(store, digest)
    if tombstone is None or _was_removed(store, digest):
        return
    try:
        durable.replace(_removal(store, digest), [tombstone], staging=store.staging)
    except KvgError:
        return


def removal_faults(store: Store) -> Iterator[tuple[str, Corrupt]]:
    """Each note of a removal that names no tombstone of its artifact, by its name in the store's
    folder, and why. Raises ``Corrupt`` where the log can't be read."""
    for stem in durable.names_in(store.root / REMOVED):
        path = store.root / REMOVED / stem
        name, digest = f"{REMOVED}/{stem}", f"{PREFIX}{stem}"
        if not is_digest(digest) or not path.is_file():
            continue
        try:
            with durable.translated(path), open(path, "rb", opener=durable.plain) as file:
                data = file.read(_MAX_INDEX_DIGITS + 1)
        except NotFound:
            continue
        if not _is_tombstone(store, data, digest):
            yield name, Corrupt(f"{name}: names no entry of the log that forgets it")


def _is_tombstone(store: Store, data: bytes, digest: Digest) -> bool:
    """Whether ``data`` is the position of a tombstone of ``digest``, perhaps an earlier one."""
    index = int(data) if data.isdigit() and len(data) <= _MAX_INDEX_DIGITS else store.log.size
    if index >= store.log.size or str(index).encode() != data:
        return False
    entry = parse_entry(next(iter(store.log.read(index, index + 1))), what=f"log entry {index}")
    return isinstance(entry, ForgetEntry) and entry.digest == digest


def _removal(store: Store, digest: Digest) -> Path:
    return store.root / REMOVED / hex_of(digest)


def _tombstone(store: Store, digest: Digest) -> bytes | None:
    """The position in the log of the tombstone that is in force; None when there is none."""
    found = store.index.query(lambda tables: dict(digests(tables, FORGOTTEN))).get(digest)
    return None if found is None else str(found).encode()


def unclaimed(store: Store) -> Unclaimed:
    """What may still be of an artifact of which nobody knows what it held.

    Raises ``Corrupt`` when it can't be told what something that the log keeps needs.
    """
    reach = Reach(store)
    with store.lock.exclusive():
        reach.look()
    lost = tuple(name for name in _lost_names(store) if not _is_claimed(name, reach))
    return Unclaimed(sum(1 for item in store.objects.all() if item not in reach), lost)


def _is_claimed(name: str, reach: Reach) -> bool:
    digest = f"{PREFIX}{name.partition('.')[0]}"
    return is_digest(digest) and digest in reach


def remove_for_good(store: Store, plan: Plan, *, now: int) -> Removed:
    """Carry ``plan`` out, under the exclusive lock. Raises ``Conflict``, ``NoSpace``."""
    with store.lock.exclusive():
        plan = plan_forget(store, plan.digest)  # as it is now
        published = store.publish(list(_entries(store, plan, now)), now=now)
        tombstones = [i for i, entry in published.entries if isinstance(entry, ForgetEntry)]
        size = store.objects.remove_all([item for item in plan.objects if item != plan.digest])
        size += store.objects.remove_all([item for item in plan.objects if item == plan.digest])
        size += _remove_aside(store, plan.aside)
        if (store.root / SEARCH).is_dir():
            durable.remove_tree(store.root / SEARCH)  # it holds text; what is left is found again
        sweep_temporaries(store)
        if plan.is_known and all(WRITER not in kept.users for kept in plan.kept):
            _note_removed(store, plan.digest)
        store.reserve.fill()
    index = tombstones[0] if tombstones else None
    return Removed(len(plan.objects), size, index, plan.is_known)


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
    named = [item for envelope in envelopes for item in named_by(store, envelope)]
    try:
        found = closure(store, digest, envelopes=envelopes)
    except (Corrupt, Incompatible):
        return None, (*dict.fromkeys(named), *envelopes, digest)
    return found, tuple(dict.fromkeys((*named, *found.objects())))


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
    idle = idle_pins(store)
    yield from ((f"pin {short(pinned)}", (pinned,)) for pinned in sorted(idle))
    for other in sorted(store.rejections() - {digest}):
        yield f"rejection {short(other)}", (other, *attested(store, other))
    kept, methods = {*names, *store.pins()} - idle, store.methods()
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


def _set_aside(store: Store, objects: Iterable[Digest]) -> dict[Digest, tuple[str, ...]]:
    """The files with damaged copies of ``objects`` that a repair moved away, by object."""
    found: dict[Digest, tuple[str, ...]] = {}
    by_name = {hex_of(item): item for item in objects}
    for name in _lost_names(store):
        digest = by_name.get(name.partition(".")[0])
        if digest is not None:
            found[digest] = (*found.get(digest, ()), name)
    return found


def _lost_names(store: Store) -> list[str]:
    return durable.names_in(store.root / LOST_FOUND)


def _remove_aside(store: Store, names: Sequence[str]) -> int:
    """Remove files and folders in ``lost-found``; returns their bytes."""
    paths = [store.root / LOST_FOUND / name for name in names]
    folders = [path for path in paths if path.is_dir() and not path.is_symlink()]
    size = 0
    for path in folders:
        size += size_of(path)
        durable.remove_tree(path)
    files = [path for path in paths if path not in folders]
    size += sum(os.lstat(path).st_size for path in files if os.path.lexists(path))
    durable.remove_all(files)
    store.quota.release(size)
    return size
