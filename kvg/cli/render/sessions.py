"""Renderers of resident sessions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from kvg.cli.render import Renderer, View
from kvg.cli.render.words import brief, count
from kvg.flow.records.sessions import SessionEntry, SlotEntry

STYLES = {"running": "green", "starting": "yellow", "stopping": "yellow", "dead": "red"}


def session(record: SessionEntry, view: View) -> Iterator[str]:
    name = view.terminal.out(record.name, "bold")
    style = STYLES.get(record.status)
    status = view.terminal.out(record.status, style) if style else record.status
    yield f"{name}  {status}{_does(record)}\n"
    if record.tcp:
        yield f"  {record.tcp}  token in {record.token_file}\n"
    if view.verbose:
        for text in (record.socket, record.store, record.log):
            if text:
                yield f"  {text}\n"
    elif record.status == "dead":
        yield f"  it was killed; kvg session start {record.name} starts it anew\n"


def _does(record: SessionEntry) -> str:
    if record.slots is None or record.status == "stopped":
        return ""
    words = f"  {record.model} {record.reference} {record.device}"
    slots = f"{record.slots_used or 0} of {count(record.slots, 'slot')} used"
    mib = (record.memory_bytes or 0) >> 20
    most = (record.memory_limit_bytes or 0) >> 20
    at = count(record.requests or 0, "request")
    return f"{words}  {slots}  {at}  {mib:,} of {most:,} MiB  pid {record.pid}"


def slot(record: SlotEntry, view: View) -> Iterator[str]:
    busy = "  busy" if record.busy else ""
    if record.digest is None:
        yield f"{record.slot}  empty{busy}\n"
        return
    yield (
        f"{record.slot}  {record.ref}  {brief(record.digest)}  {count(record.tokens, 'token')}, "
        f"{record.grafted:,} of them grafted  next position {record.position}{busy}\n"
    )


RENDERERS = cast("dict[str, Renderer]", {"session": session, "slot": slot})
