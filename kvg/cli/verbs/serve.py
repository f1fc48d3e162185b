"""``kvg __serve``: the far side of an ssh remote."""

import sys
from pathlib import Path
from typing import Annotated

from kvg.cli.declare import Argument, Context, Option
from kvg.cli.invocation import invocation


def serve(
    ctx: Context,
    path: Annotated[Path, Argument(metavar="PATH", help="The folder of the remote.")],
    read_only: Annotated[
        bool, Option("--read-only", help="Let nobody write, for a key that may only pull.")
    ] = False,
) -> None:
    """Serve a remote to the far side of ssh.

    It speaks on standard input and output; nobody types it.
    """
    from kvg.flow.serve import serve as flow

    settings = invocation(ctx).settings
    flow(settings, path, sys.stdin.buffer, sys.stdout.buffer, is_read_only=read_only)


COMMANDS = {"__serve": serve}
EXAMPLES = {"__serve": ""}
