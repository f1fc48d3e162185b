"""Renderers of names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from kvg.cli.render import Renderer, View
from kvg.cli.render.words import brief, count, gates_listed
from kvg.flow.records.refs import Name, Pinned, RefEntry, RefMoved


def ref(record: RefEntry, view: View) -> Iterator[str]:
    digest = brief(record.digest) if view.person else record.digest
    name = view.terminal.out(f"{record.ref:<24}", "bold")
    pin = "  pinned" if record.pinned else ""
    stale = f"  {record.stale}" if record.stale else ""
    gates = gates_listed(record.gates, record.unenclosed)
    yield (
        f"{name}  {digest}  {count(record.tokens, 'token')}  {count(record.pages, 'page')}  "
        f"{record.model or record.architecture}  gates: {gates}{pin}{stale}\n"
    )


def ref_moved(record: RefMoved, view: View) -> Iterator[str]:
    if record.digest is None:
        was = brief(record.previous) if record.previous else "unset"
        yield f"{record.ref}  removed (was {was})\n"
    elif record.previous == record.digest:
        yield f"{record.ref}  unchanged\n"
    else:
        before = f"  (was {brief(record.previous)})" if record.previous else ""
        yield f"{record.ref}  {brief(record.digest)}{before}\n"


def pin(record: Pinned, view: View) -> Iterator[str]:
    state = "pinned" if record.on else "not pinned"
    already = "" if record.changed else ", as it was"
    yield f"{brief(record.digest)}  {state}{already}\n"


def digest(record: Name, view: View) -> Iterator[str]:
    yield record.digest + "\n"


RENDERERS = cast(
    "dict[str, Renderer]", {"ref": ref, "ref-moved": ref_moved, "pin": pin, "digest": digest}
)
