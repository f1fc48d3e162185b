"""Records of a store as a whole."""

from __future__ import annotations

from typing import ClassVar

from kvg.flow.records.record import Record
from kvg.frozen import frozen


@frozen
class Initialised(Record):
    """A store; ``created`` is False when it was there already.

    ``origin`` names its log, None in a dry run of making one. ``shared``: with the group.
    """

    type: ClassVar[str] = "store"
    path: str
    created: bool
    bare: bool
    origin: str | None
    shared: bool


@frozen
class LogEntry(Record):
    """One entry of the store's log; what does not apply to its ``entry`` type is None.

    ``rejected`` are the gates by which a deposit or a method was, of which this is the evidence.
    """

    type: ClassVar[str] = "log-entry"
    index: int
    time: int
    entry: str
    ref: str | None = None
    digest: str | None = None
    previous: str | None = None
    keyid: str | None = None
    detail: str | None = None
    receipt: str | None = None
    rejected: tuple[str, ...] | None = None


@frozen
class CheckedReceipt(Record):
    """An entry whose place in the log ``origin`` was proved, under a checkpoint of ``size``."""

    type: ClassVar[str] = "receipt"
    origin: str
    size: int
    index: int
    time: int
    entry: str
    ref: str | None
    digest: str | None
    detail: str | None


@frozen
class Cosignature(Record):
    """A witness signed the checkpoint of ``size``, at Unix ``time`` by its own clock."""

    type: ClassVar[str] = "cosignature"
    name: str
    verifier: str
    time: int
    size: int


@frozen
class LogCheckpoint(Record):
    """What the log signed last. ``root`` is in hex; ``note`` is the signed note itself.

    ``silent`` names the witnesses of ``store.witnesses`` whose word is not among ``witnesses``.
    """

    type: ClassVar[str] = "checkpoint"
    origin: str
    size: int
    root: str
    verifier: str
    note: str
    witnesses: tuple[Cosignature, ...]
    silent: tuple[str, ...]


@frozen
class Reindexed(Record):
    """An index that was rebuilt from the files."""

    type: ClassVar[str] = "reindexed"
    entries: int
    refs: int
    artifacts: int
    objects: int
