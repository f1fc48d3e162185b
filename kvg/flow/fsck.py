"""``kvg fsck``: a whole store against itself, without a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import fields
from typing import TYPE_CHECKING

from kvg.errors import Corrupt, KvgError, NotFound, RemoteFailed
from kvg.flow.records.findings import Finding
from kvg.flow.records.upkeep import FsckSummary, Repaired
from kvg.verify import fsck as checks
from kvg.verify.findings import Finding as Fault

if TYPE_CHECKING:
    from kvg.digest import Digest
    from kvg.flow.settings import Settings
    from kvg.log.mending import Copy
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
        remotes = _Remotes(store, settings, stack)
        everything = checks.fsck(
            store,
            repair=repair,
            refetch=_refetch(store, remotes) if repair else lambda _: None,
            copies=_copies(remotes) if repair else lambda _: (),
            threads=settings.jobs,
            advance=task.advance,
        )
        for found in everything:
            if isinstance(found, Fault):
                hint = _hint(found.hint, repair=repair)
                yield Finding(found.code, found.kind, found.object, found.message, hint)
            elif isinstance(found, checks.Repaired):
                yield Repaired(found.object, found.action, found.moved_to)
            else:
                said = {item.name: getattr(found, item.name) for item in fields(FsckSummary)}
                said["faults"] += len(faults)
                yield FsckSummary(**said)


FSCK, REPAIR = "kvg fsck", "kvg fsck --repair"
"""What others are told to run, and what is left to whoever runs it."""

LEFT = (
    "unless it is told below as repaired, no remote has it: put it back from a copy of the store, "
    "or deposit anew what needs it"
)
"""What is left where ``--repair`` itself found it."""


def _hint(hint: str | None, *, repair: bool) -> str | None:
    if hint not in (FSCK, REPAIR, None):
        return hint
    return LEFT if repair else REPAIR


class _Remotes:
    """The remotes of a store, opened when they are first asked for; ``stack`` closes them.

    One that can't be reached is passed over, with a notice.
    """

    def __init__(self, store: Store, settings: Settings, stack: ExitStack) -> None:
        self._store = store
        self._settings = settings
        self._stack = stack
        self._opened: dict[str, Remote] | None = None

    def items(self) -> Iterable[tuple[str, Remote]]:
        """Each with its name."""
        if self._opened is None:
            self._opened = dict(self._open())
        return self._opened.items()

    def _open(self) -> Iterator[tuple[str, Remote]]:
        from kvg.flow.exchange.places import SECTION, find_place, opened

        for name in self._store.config.names(SECTION):
            try:
                place = find_place(self._store, name)
                yield name, self._stack.enter_context(opened(place, self._settings))
            except KvgError as error:
                self._settings.report.notice(f"remote {name}: {error.message}")


def _refetch(store: Store, remotes: _Remotes) -> Callable[[Digest], str | None]:
    """Puts a lost object back from the first remote that has it whole, and names that remote."""

    def refetch(digest: Digest) -> str | None:
        found = (name for name, remote in remotes.items() if _take(store, remote, digest))
        return next(found, None)

    return refetch


def _copies(remotes: _Remotes) -> Callable[[str], Sequence[Copy]]:
    """Gives the copies of a log that remotes have: whatever they are, they prove themselves."""

    def copies(origin: str) -> Sequence[Copy]:
        from kvg.log.checkpoint import MAX_CHECKPOINT_SIZE, parse_checkpoint
        from kvg.log.log import CHECKPOINT
        from kvg.log.mending import Copy, read_if_had

        found: list[Copy] = []
        for name, remote in remotes.items():
            source = remote.log(origin)
            note = read_if_had(source, CHECKPOINT, MAX_CHECKPOINT_SIZE)
            with suppress(Corrupt):
                found.append(Copy(source, parse_checkpoint(note or b"", what=name).size))
        return found

    return copies


def _take(store: Store, remote: Remote, digest: Digest) -> bool:
    """Store the object as ``remote`` has it, all of it checked; False when it has no good one."""
    from kvg.store.object_files import HEADER_SLACK_BYTES, LIMIT_BYTES

    try:
        stored = b"".join(remote.get(digest, limit=LIMIT_BYTES + HEADER_SLACK_BYTES))
        store.objects.put_stored(stored, digest=digest, what=remote.url)
    except (Corrupt, NotFound, RemoteFailed):
        return False
    return True
