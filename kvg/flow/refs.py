"""Names: ``kvg tag``, ``mv``, ``rm``, ``pin``, ``unpin``, ``rev-parse``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kvg.digest import Digest
from kvg.errors import Conflict, NotFound, UsageError
from kvg.flow.records.refs import Name, Pinned, RefMoved
from kvg.store import ANY, check_ref_name, is_ref_name

if TYPE_CHECKING:
    from kvg.flow.settings import Settings
    from kvg.store import Published, RefMove, Store


def tag(store: Store, settings: Settings, name: str, target: str, *, force: bool) -> RefMoved:
    """Let ``name`` stand for the artifact ``target``.

    Raises ``Conflict`` when ``name`` stands for another one, unless ``force``; ``NotFound``,
    ``Corrupt`` when ``target`` is no artifact.
    """
    from kvg.store import RefMove

    store.check_own_name(name)
    digest = store.resolve(target).digest
    store.check_artifact(digest, what=target)
    previous = store.ref(name)
    if previous not in (None, digest) and not force:
        raise Conflict(f"{name}: stands for another artifact", hint=f"kvg tag -f {name} {target}")
    index = _publish(store, settings, [RefMove(name, digest, ANY if force else previous)])
    return RefMoved(name, digest, previous, index)


def mv(store: Store, settings: Settings, old: str, new: str) -> tuple[RefMoved, RefMoved]:
    """Rename the ref ``old``, in one step. Raises ``NotFound``; ``Conflict`` when ``new`` is."""
    from kvg.store import RefMove

    store.check_own_name(new)
    digest = _current(store, old)
    if new == old:
        raise UsageError(f"{old}: the old name and the new are the same")
    if store.ref(new) is not None:
        raise Conflict(f"{new}: there is a ref of this name", hint=f"kvg rm {new}")
    index = _publish(store, settings, [RefMove(new, digest, None), RefMove(old, None, digest)])
    last = None if index is None else index + 1
    return RefMoved(new, digest, None, index), RefMoved(old, None, digest, last)


def rm(store: Store, settings: Settings, names: Sequence[str]) -> tuple[RefMoved, ...]:
    """Remove refs, all or none. What they stood for stays until gc. Raises ``NotFound``."""
    from kvg.store import RefMove

    found = [(name, _current(store, name)) for name in dict.fromkeys(names)]
    index = _publish(store, settings, [RefMove(name, None, digest) for name, digest in found])
    return tuple(
        RefMoved(name, None, digest, None if index is None else index + n)
        for n, (name, digest) in enumerate(found)
    )


def pin(store: Store, settings: Settings, targets: Sequence[str], *, on: bool) -> Iterator[Pinned]:
    """Keep artifacts whatever their refs do, or no longer.

    Raises ``NotFound``, ``Corrupt`` when one to be pinned is no artifact.
    """
    digests = [_pinned(store, target, on) for target in targets]
    for target, digest in zip(targets, digests, strict=True) if on else ():
        if digest not in store.methods():
            store.check_artifact(digest, what=target)
    for digest in dict.fromkeys(digests):
        changed = (digest in store.pins()) != on
        if changed and not settings.dry_run:
            store.set_pin(digest, on)
        yield Pinned(digest, on, changed)
    settings.tell_dry_run()


def _pinned(store: Store, target: str, on: bool) -> Digest:
    """What ``target`` stands for; what is to be unpinned may have lost the name meanwhile."""
    try:
        return store.resolve(target).digest
    except NotFound:
        if on or not is_ref_name(target):
            raise
        past = [move.digest for move in store.history(target)]
        found = next((digest for digest in past if digest in store.pins()), None)
        if found is None:
            raise
        return found


def rev_parse(store: Store, names: Sequence[str]) -> Iterator[Name]:
    """The digests that ``names`` stand for. Raises ``NotFound``."""
    for name in names:
        found = store.resolve(name)
        yield Name(found.digest, found.ref)


def _current(store: Store, name: str) -> Digest:
    check_ref_name(name)
    digest = store.ref(name)
    if digest is None:
        raise NotFound(f"{name}: no such ref", hint="kvg ls")
    return digest


def _publish(store: Store, settings: Settings, moves: Sequence[RefMove]) -> int | None:
    """Move refs. Returns the log index of the first entry; None in a dry run or for nothing new."""
    if settings.tell_dry_run():
        return None
    published: Published = store.publish(moves)
    return published.entries[0][0] if published.entries else None
