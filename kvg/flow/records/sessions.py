"""Records of resident sessions."""

from __future__ import annotations

from typing import ClassVar, Literal

from kvg.digest import Digest
from kvg.flow.records.record import Record
from kvg.frozen import frozen


@frozen
class SessionEntry(Record):
    """One session. Only ``name``, ``status`` and ``log`` are known of one that does not answer.

    ``dead``: it was killed, and its socket is left. ``slots_used`` numbered slots hold something;
    ``requests`` are under way or wait, ``done`` are over. ``memory_bytes`` counts the model and all
    state of slots, up to ``memory_limit_bytes``.
    """

    type: ClassVar[str] = "session"
    name: str
    status: Literal["running", "starting", "stopping", "stopped", "dead"]
    log: str
    pid: int | None = None
    model: str | None = None
    reference: str | None = None
    device: str | None = None
    store: str | None = None
    socket: str | None = None
    tcp: str | None = None
    token_file: str | None = None
    slots: int | None = None
    slots_used: int | None = None
    requests: int | None = None
    done: int | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    idle_s: float | None = None
    up_s: float | None = None


@frozen
class SlotEntry(Record):
    """One numbered slot: ``tokens`` are in it, the first ``grafted`` of them from ``ref``.

    The next token goes to ``position``, which is what ``--at`` must say to go on there.
    """

    type: ClassVar[str] = "slot"
    session: str
    slot: int
    busy: bool
    ref: str | None
    digest: Digest | None
    grafted: int
    tokens: int
    position: int
    memory_bytes: int
