"""Records of keeping a store in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from kvg.digest import Digest
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
    """A whole store checked. ``objects`` are the good ones, ``damaged`` the others that are there;
    ``bytes`` are raw bytes, before a codec, of the good ones.

    ``artifacts`` are the store's own, ``pushed`` those that only pointers of others name.
    ``unreachable`` counts objects that gc would remove, None where that can't be told;
    ``unfinished`` artifacts that are to be forgotten and of which something is left; ``to_forget``
    those whose forgetting was begun and has not come to its end: done again, it does.
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
    methods: int = 0
    damaged: int = 0
    pushed: int = 0
    to_forget: tuple[Digest, ...] = ()


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


@frozen
class Usage(Record):
    """What one artifact takes on disk; ``own_bytes`` is what only it needs, of refs and pins."""

    type: ClassVar[str] = "usage"
    ref: str | None
    digest: Digest
    objects: int
    bytes: int
    own_bytes: int


@frozen
class UsageSummary(Record):
    """What the store takes on disk, by kind, damaged and unneeded objects too.

    ``other_bytes`` are all files of no other kind; ``total_bytes`` is the sum. ``quota`` is None
    where there is none; it counts objects, temporary files and ``lost-found``. ``reserve_bytes``
    are held back so that something can be let go on a full disk.
    """

    type: ClassVar[str] = "usage-summary"
    objects: int
    object_bytes: int
    temporary_bytes: int
    lost_found_bytes: int
    log_bytes: int
    index_bytes: int
    reserve_bytes: int
    quota: int | None
    other_bytes: int
    total_bytes: int


@frozen
class Stats(Record):
    """The store in numbers.

    ``artifacts`` are those that ``fsck`` checks, ``objects`` all that are there. ``pages`` counts
    those that artifacts name, ``distinct_pages`` each once; the bytes are raw bytes of the one and
    the other, then bytes on disk of those that are there. ``models`` counts the artifacts whose
    manifest is there.
    """

    type: ClassVar[str] = "stats"
    refs: int
    artifacts: int
    tokens: int
    pages: int
    distinct_pages: int
    page_bytes: int
    distinct_page_bytes: int
    stored_page_bytes: int
    attestations: int
    log_entries: int
    objects: int
    models: Mapping[str, int]


@frozen
class QuotaState(Record):
    """The quota in bytes, None where there is none, and what of it is used."""

    type: ClassVar[str] = "quota"
    limit: int | None
    used: int


@frozen
class Remaining(Record):
    """Something of a forgotten artifact that stays, because ``users`` need it.

    ``kind`` is object when it was part of the artifact, or copy when another object holds some of
    the same bytes.
    """

    type: ClassVar[str] = "remaining"
    object: Digest
    kind: str
    users: tuple[str, ...]


@frozen
class Forgotten(Record):
    """An artifact that was removed for good, or in a dry run would be.

    ``remaining`` of its objects stay, since others need them; ``copies`` are the objects of others
    that hold some of the same bytes, None where nothing was searched.
    ``searched_bytes`` were searched for ``traces`` of it; ``found`` is in how many files some was
    left that nothing needs. ``faults`` are those of the fsck after it; None where none was made.
    ``known`` is False when it can't be told what it held, so that some may be left.
    """

    type: ClassVar[str] = "forgotten"
    digest: Digest
    refs: tuple[str, ...]
    objects: int
    bytes: int
    remaining: int
    copies: int | None
    log_index: int | None
    traces: int
    searched_bytes: int
    found: int
    faults: int | None
    known: bool
    dry_run: bool
