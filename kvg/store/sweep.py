"""Garbage collection: mark what the log and live writers need, then remove the rest.

No clock decides anything. Rules:

- what counts is read again under the exclusive lock before each small batch, so what a ref, a pin
  or a writer took up meanwhile stays;
- manifests go first, and durably, before anything they name; what is named or attested meanwhile
  stays in this run. So an artifact that may still be named is whole, or its manifest is gone. One
  that a deposit left half made is looked through by whoever names it (``kvg.store.publish``);
- it writes nothing, so it works on a full disk (at its end it fills the reserve); killed at any
  point, it is finished by the next;
- the index decides nothing. A stale, damaged or lying one could only make an object look unneeded,
  so before anything goes, refs, pins, envelopes and methods come from a fold over the log made anew
  (``Store.by_log``), and what an artifact needs from the bytes of its manifest, which its digest
  vouches for. Only a dry run asks the index, and removes nothing;
- an artifact that the log keeps and whose manifest can't be read stops it: nobody knows what that
  one needs;
- envelopes that count in the log stay: what was said of an artifact stays said.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import chain, islice
from typing import TYPE_CHECKING

from kvg import durable
from kvg.digest import Digest, short
from kvg.errors import Conflict, Corrupt, Incompatible, KvgError
from kvg.frozen import frozen
from kvg.locking import Lock
from kvg.log.entry import AttestationEntry, PinEntry, RefEntry, parse_entry
from kvg.objects.manifest import MAX_SIZE_BYTES, digests_in
from kvg.store import pending
from kvg.store.closure import named_by
from kvg.store.layout import EXCHANGE_LOCK, PUBLISHED, QUARANTINE
from kvg.store.marks import Marks

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.store.store import Store

BATCH = 64
"""Objects that are removed in one holding of the exclusive lock."""

INDEX_ASIDE = "index."
"""What the names of index folders begin with that were moved out of the way."""

LONGEST_PAUSE_S = 0.05


@frozen
class Swept:
    """What was removed, or in a dry run would be. Temporaries are files and folders in ``tmp``."""

    objects: int
    bytes: int
    temporaries: int
    temporary_bytes: int
    kept: int


def sweep(
    store: Store,
    *,
    dry_run: bool = False,
    batch: int = BATCH,
    advance: Callable[[int], None] = lambda _: None,
) -> Swept:
    """Remove every object that nothing needs, and what writers that ended left in ``tmp``.

    ``advance`` is told how many objects were looked at. Raises ``Corrupt`` when something that the
    log keeps can't be read, ``Conflict`` when the lock is not had.
    """
    if (store.root / PUBLISHED).is_dir():
        raise KvgError(
            f"{store.root}: other stores push here, and nobody knows what they need of it",
            hint="what was pushed stays; gc runs in the stores that push",
        )
    if dry_run:
        reach = Reach(store)
        reach.look()
        return _count(store, reach, advance)
    with store.by_log() as certain:
        objects, size = _sweep_objects(certain, batch, advance)
    temporaries, temporary_bytes = sweep_temporaries(store)
    with store.lock.exclusive():
        store.reserve.fill()
    kept = sum(1 for _ in store.objects.all())
    return Swept(objects, size, temporaries, temporary_bytes, kept)


def _sweep_objects(store: Store, batch: int, advance: Callable[[int], None]) -> tuple[int, int]:
    """Remove every object that nothing needs; returns how many, and their bytes."""
    reach, objects, size = Reach(store), 0, 0
    for phase in (_manifests(store), store.objects.all()):
        for candidates in _batches(phase, batch):
            began = time.monotonic()
            n_dead, n_bytes = _remove(store, reach, candidates)
            advance(len(candidates))
            objects, size = objects + n_dead, size + n_bytes
            if n_dead:
                _give_way(time.monotonic() - began)
    return objects, size


class Reach:
    """What is reachable, as of the last look; it only grows."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._marks = Marks(store.objects.count())
        self._expanded: set[Digest] = set()
        self._refs: frozenset[Digest] = frozenset()
        self._pins: frozenset[Digest] = frozenset()
        self._methods: frozenset[Digest] = frozenset()
        self._preregistered: frozenset[Digest] = frozenset()
        self._log_size = -1

    def __contains__(self, digest: Digest) -> bool:
        return digest in self._marks

    def look(self) -> None:
        """Take up what the log and the writers have come to need since the last look.

        What was named since then counts, also if it lost its name again: its manifest may have
        come after manifests were swept.
        """
        store, size = self._store, self._store.log.size
        roots = set(store.live_roots())
        if size != self._log_size:
            roots.update(self._named_lately(size))
            self._refs = frozenset(store.refs().values())
            self._pins, self._methods = store.pins(), store.methods()
            self._preregistered = store.preregistered()
            roots |= store.logged_roots()
            self._log_size = size
        for root in roots:
            if root not in self._expanded:
                self._expand(root)

    def _named_lately(self, size: int) -> Iterator[Digest]:
        """The subjects of what was logged since the last look; envelopes are marked at once."""
        if self._log_size < 0:
            for _, envelope in self._store.logged_envelopes():
                self._marks.add(envelope)
            return
        for index, raw in enumerate(self._store.log.read(self._log_size, size), self._log_size):
            entry = parse_entry(raw, what=f"log entry {index}")
            if isinstance(entry, AttestationEntry):
                self._marks.add(entry.envelope)
                for needed in named_by(self._store, entry.envelope):
                    self._marks.add(needed)
                yield entry.subject
            elif isinstance(entry, RefEntry | PinEntry) and entry.digest is not None:
                yield entry.digest

    def _expand(self, root: Digest) -> None:
        """Mark ``root`` and all it needs; what a statement names may be an artifact itself."""
        waiting, seen = [root], set[Digest]()
        while waiting:
            digest = waiting.pop()
            self._marks.add(digest)
            if digest in seen or digest in self._expanded:
                continue
            if digest in self._preregistered:
                waiting += self._runs_of(digest)
            said = self._store.attestations(digest)
            if said or digest in self._refs or digest in self._pins:
                seen.add(digest)
                waiting += self._mark_needs(digest, [item.envelope for item in said])

    def _runs_of(self, preregistration: Digest) -> Iterator[Digest]:
        """The artifacts whose runs were committed to, as far as they are here."""
        from kvg.objects.preregistration import parse_preregistration

        if not self._store.objects.has(preregistration):
            return
        what = f"preregistration {short(preregistration)}"
        raw = bytes(self._store.objects.read(preregistration, what=what))
        try:
            found = parse_preregistration(raw, what=what)
        except (Corrupt, Incompatible):
            return  # of a kind that is not known here
        yield from (run.manifest for run in found.runs if self._store.objects.has(run.manifest))

    def _mark_needs(self, digest: Digest, envelopes: Sequence[Digest]) -> Iterator[Digest]:
        """Mark what ``digest`` needs, an artifact or a method: its kind comes from what names it.

        Gives that which may need more. An artifact that can't be read now may be deposited again:
        it is looked at anew each time.
        """
        is_kept = digest in self._refs or (digest in self._pins and bool(envelopes))
        if digest not in self._methods:
            try:
                for needed in self._digests_in(digest):
                    self._marks.add(needed)
                self._expanded.add(digest)
            except (Corrupt, Incompatible) as error:
                if is_kept:
                    raise Corrupt(
                        f"{short(digest)}: cannot tell what it needs: {error.message}",
                        hint="kvg fsck; nothing that it may need was removed",
                    ) from None
        for envelope in envelopes:
            self._marks.add(envelope)
            for named in named_by(self._store, envelope):
                if self._store.objects.has(named):
                    yield named

    def _digests_in(self, manifest: Digest) -> frozenset[Digest]:
        what = short(manifest)
        raw = self._store.objects.read(manifest, what=what, limit=MAX_SIZE_BYTES)
        return digests_in(raw, what=what)


def _manifests(store: Store) -> Iterator[Digest]:
    """What may be taken up again under its digest or an old value of a ref."""
    subjects = chain(store.artifacts(), sorted(store.once_named()))
    return (digest for digest in dict.fromkeys(subjects) if store.objects.has(digest))


def _batches(digests: Iterable[Digest], most: int) -> Iterator[tuple[Digest, ...]]:
    rest = iter(digests)
    while batch := tuple(islice(rest, most)):
        yield batch


def _remove(store: Store, reach: Reach, candidates: Iterable[Digest]) -> tuple[int, int]:
    """Remove those of ``candidates`` that nothing needs; returns how many, and their bytes."""
    with store.lock.exclusive():
        reach.look()
        dead = [digest for digest in candidates if digest not in reach]
        dead = [digest for digest in dead if store.objects.has(digest)]
        return len(dead), store.objects.remove_all(dead)


def _count(store: Store, reach: Reach, advance: Callable[[int], None]) -> Swept:
    objects = size = kept = 0
    for digest in store.objects.all():
        advance(1)
        if digest in reach:
            kept += 1
        else:
            objects, size = objects + 1, size + store.objects.stored_size(digest)
    temporaries, temporary_bytes = sweep_temporaries(store, dry_run=True)
    return Swept(objects, size, temporaries, temporary_bytes, kept)


def sweep_temporaries(store: Store, *, dry_run: bool = False) -> tuple[int, int]:
    """Remove what writers that ended left in ``tmp``; returns how many, and their bytes.

    Files of writers at work are flocked and stay, and what has a name of another kind is another's.
    A dry run takes no lock: it keeps nobody waiting.
    """
    count = size = 0
    with nullcontext() if dry_run else store.lock.exclusive():
        for path in _entries(store.staging):
            freed = _sweep_temporary(path, dry_run)
            if freed is not None:
                count, size = count + 1, size + freed
        if not dry_run:
            count += pending.remove_dead(store.staging)
    return count, size


def _sweep_temporary(path: Path, dry_run: bool) -> int | None:
    if path.name.startswith(durable.PARTIAL + "."):
        return durable.remove_abandoned(path, dry_run=dry_run)
    if path.name == QUARANTINE and path.is_dir() and not path.is_symlink():
        return _sweep_quarantine(path, dry_run)
    if path.name.startswith(INDEX_ASIDE) and path.is_dir() and not path.is_symlink():
        size = sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(path))
        if not dry_run:
            durable.remove_tree(path)
        return size
    return None


def _sweep_quarantine(path: Path, dry_run: bool) -> int | None:
    """What was received and not taken; a fetch that is at work keeps its own."""
    from kvg.store.quota import size_of

    try:
        if not size_of(path):
            return None
        with Lock(path.parent.parent / EXCHANGE_LOCK, wait_s=0).exclusive():
            size = size_of(path)
            if not dry_run:
                durable.remove_tree(path)
            return size
    except Conflict:
        return None


def _entries(folder: Path) -> list[Path]:
    return [folder / name for name in durable.names_in(folder)]


def _give_way(seconds: float) -> None:
    """Leave the lock free for as long as it was held, so that writers who wait get it."""
    time.sleep(min(seconds, LONGEST_PAUSE_S))
