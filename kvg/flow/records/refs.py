"""Records of names."""

from __future__ import annotations

from typing import ClassVar

from kvg.digest import Digest
from kvg.flow.records.record import Record
from kvg.frozen import frozen


@frozen
class RefEntry(Record):
    """A ref and its artifact at a glance; ``model`` is the name of the model here, or None.

    ``stale`` says why it counts no more, None when it is fresh. ``unenclosed`` are those of
    ``gates`` that ran without a sandbox.
    """

    type: ClassVar[str] = "ref"
    ref: str
    digest: Digest
    tokens: int
    pages: int
    model: str | None
    architecture: str
    reference: str
    gates: tuple[str, ...]
    pinned: bool
    previous: int
    stale: str | None = None
    unenclosed: tuple[str, ...] = ()


@frozen
class RefMoved(Record):
    """A ref that was set, moved or removed (``digest`` None); ``log_index`` None in a dry run."""

    type: ClassVar[str] = "ref-moved"
    ref: str
    digest: Digest | None
    previous: Digest | None
    log_index: int | None


@frozen
class Pinned(Record):
    """A pin that is now ``on`` or off; ``changed`` is False when it was so before."""

    type: ClassVar[str] = "pin"
    digest: Digest
    on: bool
    changed: bool


@frozen
class Name(Record):
    """The digest that a name stands for."""

    type: ClassVar[str] = "digest"
    digest: Digest
    ref: str | None
