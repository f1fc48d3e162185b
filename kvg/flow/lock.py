"""``kvg lock``: what refs stand for, written down for CI."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kvg import durable
from kvg.digest import Digest, short
from kvg.errors import Conflict, Corrupt, Incompatible, NotFound
from kvg.flow.records.exchange import LockEntry
from kvg.flow.records.findings import Finding
from kvg.store.lockfile import read_lock, write_lock

if TYPE_CHECKING:
    from kvg.flow.settings import Settings
    from kvg.store import Store


def lock(store: Store, settings: Settings, path: Path, refs: Sequence[str]) -> Iterator[LockEntry]:
    """Write what ``refs`` (all of the store's own without any) stand for into ``path``.

    With ``refs`` the file's other lines stay. Raises ``NotFound``, ``Corrupt``, and ``UsageError``
    where no file may be written.
    """
    own, target = store.own_refs(), settings.cwd / path
    for name in refs:
        if name not in own:
            raise NotFound(f"{name}: no such ref", hint="kvg ls")
    durable.check_target(target, option="--file")
    before = _before(target, is_kept=bool(refs))
    chosen = {name: own[name] for name in (refs or own)}
    after = {**before, **chosen} if refs else chosen
    if not settings.tell_dry_run() and after != before:
        write_lock(target, after)
    for name in sorted({**before, **after}):
        yield LockEntry(name, after.get(name), before.get(name), str(path))


def _before(target: Path, *, is_kept: bool) -> dict[str, Digest]:
    """What the lock file said; nothing where it can't be read and nothing of it is kept."""
    if not target.exists():
        return {}
    try:
        return read_lock(target)
    except (Corrupt, Incompatible):
        if is_kept:
            raise
        return {}


def read_locked(settings: Settings, path: Path) -> dict[str, Digest]:
    """What the lock file ``path`` says, about one ref at least: nothing is held to an empty one.

    Raises ``NotFound``, ``Corrupt``, ``Incompatible``.
    """
    found = read_lock(settings.cwd / path)
    if not found:
        raise NotFound(f"{path}: names no ref", hint="kvg lock writes down what they stand for")
    return found


def unlocked(store: Store, locked: dict[str, Digest], path: Path) -> Iterator[Finding]:
    """Each ref that is not here, or stands for something else than the lock file says."""
    for name, digest in sorted(locked.items()):
        here = store.ref(name)
        if here == digest:
            continue
        error = (
            NotFound(
                f"{name}: not here; {path} has {short(digest)}", hint=_pull_hint(store, digest)
            )
            if here is None
            else Conflict(
                f"{name}: stands for {short(here)}; {path} has {short(digest)}",
                hint=f"kvg log {name}; if it is meant: {_lock_hint(store, name)}",
            )
        )
        yield Finding(error.code, error.kind, name, error.message, error.hint)


def unnamed(store: Store, names: Sequence[str], path: Path) -> Iterator[Finding]:
    """That the lock file says nothing of ``names``, so that they can't be held to it."""
    for name in names:
        error = NotFound(f"{name}: {path} does not name it", hint=_lock_hint(store, name))
        yield Finding(error.code, error.kind, name, error.message, error.hint)


def _lock_hint(store: Store, name: str) -> str:
    """What brings ``name`` into a lock file: those hold the store's own refs."""
    if store.is_tracking(name) or store.ref(name) is None:
        return f"kvg tag OWN {name}, then kvg lock OWN"
    return f"kvg lock {name}"


def _pull_hint(store: Store, digest: Digest) -> str:
    if digest in store.forgotten():
        return "it was removed here with kvg forget; kvg deposit makes it again"
    return "kvg pull --lock"
