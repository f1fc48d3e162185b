"""``kvg pull``."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from kvg.cli.declare import Argument, Context, Option
from kvg.cli.invocation import invocation
from kvg.flow.records import Record


def pull(
    ctx: Context,
    remote: Annotated[
        str | None, Argument(metavar="REMOTE", help="Its name here; origin if left out.")
    ] = None,
    refs: Annotated[
        list[str] | None, Argument(metavar="REF", help="Refs there; all if none.")
    ] = None,
    trust: Annotated[
        list[str] | None,
        Option("--trust", metavar="KEYID", help="Trust this key on offer there first."),
    ] = None,
    lock: Annotated[
        Path | None,
        Option("--lock", metavar="FILE", help="Take exactly what this lock file says."),
    ] = None,
) -> Iterable[Record]:
    """Fetch, and move your own refs along.

    Fast-forward only: a ref that went another way here is left, and told. Every byte is checked:
    what is damaged or missing there is taken from another of your remotes, if one has it, and else
    listed while everything else is taken; kvg push --verify, by who has it whole, mends it.

    With --lock a ref gets the value that the file says, also where the remote has gone on since.
    """
    from kvg.flow.pull import pull as flow

    run = invocation(ctx)
    return flow(run.store, run.settings, remote, refs or (), trust=trust or (), lock=lock)


COMMANDS = {"pull": pull}
EXAMPLES = {
    "pull": """
    $ kvg pull
    origin: handbook moved, 12 objects
    $ kvg pull origin handbook
    $ kvg pull --lock kvg.lock
    """
}
