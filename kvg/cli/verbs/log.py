"""``kvg log``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from kvg.cli.invocation import invocation
from kvg.cli.values import parse_moment
from kvg.flow.records import Record


def log(
    ctx: typer.Context,
    ref: Annotated[
        str | None, typer.Argument(metavar="REF", help="Only what concerns this ref.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="T", help="Not before: a date, 2d, 3h.")
    ] = None,
    receipt: Annotated[
        bool, typer.Option("--receipt", help="With the proof of each entry's place.")
    ] = False,
) -> Iterable[Record]:
    """Show what happened, newest first.

    Each line is an entry of the store's signed log, whose order can be proved; times are what the
    writer said.
    """
    from kvg.flow.log import log as flow

    moment = None if since is None else parse_moment(since, option="--since", ahead=False)
    return flow(invocation(ctx).store, ref, since=moment, receipt=receipt)


COMMANDS = {"log": log}
EXAMPLES = {
    "log": """
    $ kvg log
    $ kvg log handbook --since 7d
    $ kvg log handbook --receipt --json
    """
}
