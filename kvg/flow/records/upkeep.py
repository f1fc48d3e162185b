"""Records of keeping a store in order."""

from __future__ import annotations

from typing import ClassVar

from kvg.flow.records.record import Record
from kvg.frozen import frozen


@frozen
class Repaired(Record):
    """What was done about a fault; ``moved_to`` lies under the store's folder."""

    type: ClassVar[str] = "repaired"
    object: str
    action: str
    moved_to: str | None


@frozen
class FsckSummary(Record):
    """A whole store checked. ``bytes`` are raw bytes of good objects.

    ``unreachable`` counts objects that gc would remove, None where that can't be told;
    ``unfinished`` artifacts that are to be forgotten and of which something is left.
    """

    type: ClassVar[str] = "fsck-summary"
    objects: int
    bytes: int
    artifacts: int
    log_entries: int
    unreachable: int | None
    unfinished: int
    faults: int
    repaired: int


@frozen
class Collected(Record):
    """What gc removed, or in a dry run would remove. Sizes are of files on disk."""

    type: ClassVar[str] = "collected"
    objects: int
    bytes: int
    temporaries: int
    temporary_bytes: int
    kept: int
    dry_run: bool
