"""The record of a store at a glance; alone, since it is asked for so often."""

from __future__ import annotations

from typing import ClassVar

from kvg.flow.records.record import Record
from kvg.frozen import frozen


@frozen
class RemoteState(Record):
    """A remote as last seen: refs that a push would move (``ahead``), and a pull (``behind``).

    ``refused`` refs there were left out of the last fetch or pull that looked at them, which said
    why; ``kvg remote show`` says it again. ``seen`` is False where nothing was ever pushed or
    fetched.
    """

    type: ClassVar[str] = "remote-state"
    name: str
    seen: bool
    ahead: int
    behind: int
    refused: int = 0


@frozen
class Status(Record):
    """The store at a glance."""

    type: ClassVar[str] = "status"
    path: str
    origin: str
    refs: int
    artifacts: int
    log_size: int
    model: str | None
    models: int
    keys: int
    remotes: tuple[str, ...]
    remote_states: tuple[RemoteState, ...]
    require: tuple[str, ...]
