"""Records of names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kvg.digest import Digest
from kvg.flow.records.record import Record


@dataclass(frozen=True, slots=True)
class RefEntry(Record):
    """A ref and its artifact at a glance; ``model`` is the name of the model here, or None."""

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


@dataclass(frozen=True, slots=True)
class RefMoved(Record):
    """A ref that was set, moved or removed (``digest`` None); ``log_index`` None in a dry run."""

    type: ClassVar[str] = "ref-moved"
    ref: str
    digest: Digest | None
    previous: Digest | None
    log_index: int | None


@dataclass(frozen=True, slots=True)
class Pinned(Record):
    """A pin that is now ``on`` or off; ``changed`` is False when it was so before."""

    type: ClassVar[str] = "pin"
    digest: Digest
    on: bool
    changed: bool


@dataclass(frozen=True, slots=True)
class Name(Record):
    """The digest that a name stands for."""

    type: ClassVar[str] = "digest"
    digest: Digest
    ref: str | None
