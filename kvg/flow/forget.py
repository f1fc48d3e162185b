"""``kvg forget``: exact unlearning, with its proof."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kvg.digest import short
from kvg.errors import Corrupt, KvgError, NotFound, UsageError
from kvg.flow.fsck import fsck
from kvg.flow.records.findings import Finding
from kvg.flow.records.upkeep import Forgotten, Remaining
from kvg.store.forget import plan_forget, remove_for_good, unclaimed, users_of
from kvg.store.layout import LOST_FOUND, PUBLISHED
from kvg.store.names import parse_digest_prefix
from kvg.store.traces import find_traces, take_traces
from kvg.store.wanted import keep_wanted, mark_of, read_wanted

if TYPE_CHECKING:
    from kvg.digest import Digest
    from kvg.flow.exchange.places import Place
    from kvg.flow.records import Record
    from kvg.flow.settings import Settings
    from kvg.store import Store
    from kvg.store.forget import Plan, Unclaimed
    from kvg.store.traces import Trace
    from kvg.store.wanted import Mark

_UNKNOWN = "its manifest or an attestation can't be read, so it is not known what it held"


def forget(
    store: Store, settings: Settings, targets: Sequence[str], *, remote: str | None = None
) -> Iterator[Record]:
    """Remove artifacts for good: content, token ids, sources, and every page only they use.

    Yields what stays because something else needs it, faults, and for each artifact what was done.
    Their names go too; a tombstone in the log stays. Then everything is checked, and every file is
    searched for bytes of what went: what is found where nothing needs it is told, and looked for
    again by each later run until it is gone. Where it can't be known what one held, that is told as
    a fault.
    With ``remote`` the remote of that name forgets it after that.
    Raises ``NotFound``, ``Corrupt``, ``Conflict``.
    """
    place = None if remote is None else _place(store, remote)
    for digest in dict.fromkeys(
        _target(store, target, again=place is not None) for target in targets
    ):
        yield from _forget(store, settings, digest)
        if place is not None:
            from kvg.flow.exchange.forgetting import forget_there

            yield from forget_there(store, settings, place, digest)


def _place(store: Store, name: str) -> Place:
    from kvg.flow.exchange.places import find_place

    return find_place(store, name)


def _target(store: Store, text: str, *, again: bool) -> Digest:
    """What ``text`` means; also an artifact whose removal was cut short.

    ``again``: also what a ref stood for until it was forgotten here.
    """
    try:
        return store.resolve(text).digest
    except NotFound:
        if again and (last := _last_value(store, text)) is not None:
            return last
        digits = parse_digest_prefix(text)
        wanted = f"sha256:{digits}"
        found = [d for d in store.forgotten() if digits is not None and d.startswith(wanted)]
        if len(found) != 1:
            raise
        return found[0]


def _last_value(store: Store, name: str) -> Digest | None:
    """What the ref ``name``, which is gone, stood for last, where that is forgotten."""
    try:
        moves = store.history(name)
    except (NotFound, UsageError):
        return None
    last = next((move.digest for move in moves if move.digest is not None), None)
    return last if last in store.forgotten() else None


def _forget(store: Store, settings: Settings, digest: Digest) -> Iterator[Record]:
    plan = plan_forget(store, digest)
    if not plan.is_known and settings.dry_run:
        settings.report.warning(f"{short(digest)}: {_UNKNOWN}")
    for kept in plan.kept:
        yield Remaining(kept.digest, "object", kept.users)
    if settings.dry_run:
        yield _planned(store, plan)
        return
    traces = _to_look_for(store, plan)
    keep_wanted(store, digest, _marks(traces))
    try:
        done = remove_for_good(store, plan, now=int(time.time()))
    except KvgError:
        if digest not in store.forgotten():  # it stands: nothing of it is to be looked for
            keep_wanted(store, digest, ())
        raise
    searched, hits = _search(store, settings, traces)
    unknown = [] if done.is_known else [*_unknown(store, digest)]
    proof = [*_judged(store, digest, hits), *_faults(store, settings)]
    yield from (*unknown, *proof)
    copies = sum(1 for item in proof if isinstance(item, Remaining))
    left = sum(1 for item in proof if isinstance(item, Finding) and item.code == KvgError.code)
    keep_wanted(store, digest, _marks(traces) if left else ())
    yield Forgotten(
        digest=digest,
        refs=plan.refs,
        objects=done.objects,
        bytes=done.bytes,
        remaining=len(plan.kept),
        copies=copies,
        log_index=done.log_index,
        traces=len(traces),
        searched_bytes=searched,
        found=left,
        faults=len(proof) - copies - left,
        known=not unknown,
        dry_run=False,
    )


def _to_look_for(store: Store, plan: Plan) -> tuple[bytes | Mark, ...]:
    """Stretches of what is there now, and the marks of what earlier runs did not see gone."""
    fresh = take_traces(store, plan.content)
    known = frozenset(map(mark_of, fresh))
    return (*fresh, *(mark for mark in read_wanted(store, plan.digest) if mark not in known))


def _marks(traces: Sequence[bytes | Mark]) -> tuple[Mark, ...]:
    return tuple(mark_of(item) if isinstance(item, bytes) else item for item in traces)


def _planned(store: Store, plan: Plan) -> Forgotten:
    return Forgotten(
        digest=plan.digest,
        refs=plan.refs,
        objects=len(plan.objects),
        bytes=sum(store.objects.stored_size(item) for item in plan.objects),
        remaining=len(plan.kept),
        copies=None,
        log_index=None,
        traces=0,
        searched_bytes=0,
        found=0,
        faults=None,
        known=plan.is_known,
        dry_run=True,
    )


def _unknown(store: Store, digest: Digest) -> Iterator[Finding]:
    """Told unless all that the store still has is of something else."""
    left = unclaimed(store)
    if not left.objects and not left.aside:
        return
    yield Finding(
        Corrupt.code,
        Corrupt.kind,
        digest,
        f"{short(digest)}: {_UNKNOWN}: {left.objects} objects and {len(left.aside)} files in "
        f"{LOST_FOUND} are of nothing else",
        f"{_hint(store, left)}then kvg forget {short(digest)} again",
    )


def _hint(store: Store, left: Unclaimed) -> str:
    if (store.root / PUBLISHED).is_dir():
        return "what other stores pushed here is among them; once their refs are gone, "
    swept = "kvg gc, " if left.objects else ""
    return swept + (f"remove from {LOST_FOUND} what you need no more, " if left.aside else "")


def _judged(store: Store, digest: Digest, hits: Sequence[Trace]) -> Iterator[Remaining | Finding]:
    """What was found: the same bytes in what something else needs, or left where they must not."""
    users = users_of(store, [hit.digest for hit in hits if hit.digest], besides=digest)
    for hit in hits:
        if hit.digest is not None and hit.digest in users:
            yield Remaining(hit.digest, "copy", tuple(sorted(users[hit.digest])))
        else:
            yield _left(hit, digest)


def _faults(store: Store, settings: Settings) -> Iterator[Finding]:
    """What is wrong with the store; of a pin that keeps what is no artifact, only a warning."""
    pins = store.pins()
    for found in fsck(store, settings):
        if not isinstance(found, Finding):
            continue
        if found.code == NotFound.code and found.object in pins:
            settings.report.warning(f"{found.message}: {found.hint}")
        else:
            yield found


def _search(
    store: Store, settings: Settings, traces: Sequence[bytes | Mark]
) -> tuple[int, tuple[Trace, ...]]:
    """How many bytes were searched, and what was found."""
    from kvg.store.quota import size_of

    searched = 0
    with settings.report.task("search", size_of(store.root), "B") as task:

        def advance(n_bytes: int) -> None:
            nonlocal searched
            searched += n_bytes
            task.advance(n_bytes)

        hits = tuple(find_traces(store, traces, advance=advance)) if traces else ()
    return searched, hits


def _left(hit: Trace, digest: Digest) -> Finding:
    remedy = "remove this file by hand" if hit.digest is None else "kvg gc"
    return Finding(
        KvgError.code,
        KvgError.kind,
        hit.path,
        f"{hit.path}: holds bytes of what was to be forgotten, and nothing needs it",
        f"{remedy}, then kvg forget {short(digest)} again",
    )
