"""The renderer of a store at a glance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from kvg.cli.render import Renderer, View
from kvg.cli.render.words import columns, count, listed
from kvg.flow.records.status import RemoteState, Status


def status(record: Status, view: View) -> Iterator[str]:
    """One line; with ``-v`` all of it."""
    remotes = "; ".join(_remote(state) for state in record.remote_states) or "no remote"
    yield (
        f"{count(record.refs, 'ref')}; {remotes}; model {record.model or 'none'}; "
        f"gates required: {listed(record.require)}\n"
    )
    if view.verbose:
        yield columns(
            (
                ("store", record.path),
                ("artifacts", f"{record.artifacts:,}"),
                ("log", f"{record.log_size:,} entries"),
                ("origin", record.origin),
                ("trusted keys", f"{record.keys}"),
                ("models", f"{record.models}"),
            )
        )


def remote_state(record: RemoteState, view: View) -> Iterator[str]:
    yield _remote(record) + "\n"


def _remote(state: RemoteState) -> str:
    if not state.seen:
        return f"{state.name} never seen"
    told = [f"ahead {state.ahead}"] if state.ahead else []
    told += [f"behind {state.behind}"] if state.behind else []
    told += [f"refused {state.refused}"] if state.refused else []
    return f"{state.name} {', '.join(told) or 'up to date'}"


RENDERERS = cast("dict[str, Renderer]", {"status": status, "remote-state": remote_state})
