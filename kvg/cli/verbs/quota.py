"""``kvg quota``."""

from typing import Annotated

from kvg.cli.declare import Argument, Context
from kvg.cli.invocation import invocation
from kvg.cli.values import parse_size
from kvg.flow.records import Record


def quota(
    ctx: Context,
    size: Annotated[
        str | None,
        Argument(metavar="SIZE", help="E.g. 250GB, 10GiB, a number of bytes, or none."),
    ] = None,
) -> Record:
    """Show or set the limit on what the store takes.

    The limit is hard: objects, temporary files and lost-found count, and what would get past it is
    refused before it is written (exit 10), a push to this store too, into its folder or by ssh.
    Without SIZE, show the limit and what is used.
    """
    from kvg.flow import quota as flows

    run = invocation(ctx)
    if size is None:
        return flows.quota(run.store)
    return flows.set_quota(run.store, run.settings, parse_size(size))


COMMANDS = {"quota": quota}
EXAMPLES = {
    "quota": """
    $ kvg quota 250GB
    $ kvg quota
    71.2 GiB of 232.8 GiB used
    $ kvg quota none
    """
}
