"""``kvg init``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvg.cli.invocation import invocation
from kvg.flow.records import Record


def init(
    ctx: typer.Context,
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="Where to make it; here if left out.")
    ] = None,
    bare: Annotated[
        bool, typer.Option("--bare", help="Make DIR itself the store, to be used as a remote.")
    ] = False,
) -> Record:
    """Make a store.

    Doing it again is harmless. The key that signs the store's log is kept with your own keys.
    """
    from kvg.flow.init import init as flow

    return flow(invocation(ctx).settings, folder, bare=bare)


COMMANDS = {"init": init}
EXAMPLES = {
    "init": """
    $ kvg init
    initialised .kvg
    $ kvg init --bare /mnt/share
    """
}
