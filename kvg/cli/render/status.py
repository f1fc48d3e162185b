"""The renderer of a store at a glance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from kvg.cli.render import Renderer, View
from kvg.cli.render.words import columns, count, listed
from kvg.flow.records.status import Status


def status(record: Status, view: View) -> Iterator[str]:
    """One line; with ``-v`` all of it."""
    remotes = "; ".join(record.remotes) or "no remote"
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


RENDERERS = cast("dict[str, Renderer]", {"status": status})
