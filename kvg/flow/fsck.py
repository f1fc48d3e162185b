"""``kvg fsck``: a whole store against itself, without a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import fields
from typing import TYPE_CHECKING

from kvg.errors import Corrupt, KvgError, NotFound
from kvg.flow.records.findings import Finding
from kvg.flow.records.upkeep import FsckSummary, Repaired
from kvg.verify import fsck as checks
from kvg.verify.findings import Finding as Fault

if TYPE_CHECKING:
    from kvg.digest import Digest
    from kvg.flow.settings import Settings
    from kvg.remote import Remote
    from kvg.store import Store


def fsck(
    store: Store,
    settings: Settings,
    *,
    repair: bool = False,
    faults: Sequence[Finding] = (),
) -> Iterator[Finding | Repaired | FsckSummary]:
    """Every fault, what was done about it, then a summary; it goes on after each fault.

    ``faults`` are those with which it was opened. ``repair`` moves bad objects into ``lost-found``,
    fetches lost ones from remotes that have them, and rebuilds the index. Raises ``Conflict``.
    """
    yield from faults
    total = sum(1 for _ in store.objects.all())
    with settings.report.task("check", total, "objects") as task, ExitStack() as stack:
        everything = checks.fsck(
            store,
            repair=repair,
            refetch=_refetch(store, settings, stack) if repair else lambda _: None,
            threads=settings.jobs,
            advance=task.advance,
        )
        for found in everything:
            if isinstance(found, Fault):
                hint = REPAIR if found.hint == FSCK and not repair else found.hint
                yield Finding(found.code, found.kind, found.object, found.message, hint)
            elif isinstance(found, checks.Repaired):
                yield Repaired(found.object, found.action, found.moved_to)
            else:
                said = {item.name: getattr(found, item.name) for item in fields(FsckSummary)}
                said["faults"] += len(faults)
                yield FsckSummary(**said)


FSCK, REPAIR = "kvg fsck", "kvg fsck --repair"
"""What others are told to run, and what is left to whoever runs it."""


def _refetch(store: Store, settings: Settings, stack: ExitStack) -> Callable[[Digest], str | None]:
    """Puts a lost object back from the first remote that has it whole, and names that remote.

    A remote that can't be reached is passed over, with a notice. Remotes are closed by ``stack``.
    """
    from kvg.flow.exchange.places import SECTION, find_place, opened

    remotes: dict[str, Remote] = {}

    def open_all() -> None:
        for name in store.config.names(SECTION):
            try:
                remotes[name] = stack.enter_context(opened(find_place(store, name), settings))
            except KvgError as error:
                settings.report.notice(f"remote {name}: {error.message}")

    def refetch(digest: Digest) -> str | None:
        if not remotes:
            open_all()
        return next((name for name in remotes if _take(store, remotes[name], digest)), None)

    return refetch


def _take(store: Store, remote: Remote, digest: Digest) -> bool:
    """Store the object as ``remote`` has it, all of it checked; False when it has no good one."""
    from kvg.errors import RemoteFailed
    from kvg.store.object_files import HEADER_SLACK_BYTES, LIMIT_BYTES

    try:
        stored = b"".join(remote.get(digest, limit=LIMIT_BYTES + HEADER_SLACK_BYTES))
        store.objects.put_stored(stored, digest=digest, what=remote.url)
    except (Corrupt, NotFound, RemoteFailed):
        return False
    return True
