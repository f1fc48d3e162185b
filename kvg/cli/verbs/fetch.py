"""``kvg fetch``."""

from collections.abc import Iterable
from typing import Annotated

from kvg.cli.declare import Argument, Context, Option
from kvg.cli.invocation import invocation
from kvg.flow.records import Record


def fetch(
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
) -> Iterable[Record]:
    """Bring what a remote has here, verified.

    It is named REMOTE/REF; your own refs stay as they are. Nothing can be seen before every byte,
    signature and log proof of it holds. What was received of an interrupted one is kept.

    Where no ref is named, REMOTE/REF of what was taken off there goes; your own ref stays.
    """
    from kvg.flow.fetch import fetch as flow

    run = invocation(ctx)
    return flow(run.store, run.settings, remote, refs or (), trust=trust or ())


COMMANDS = {"fetch": fetch}
EXAMPLES = {
    "fetch": """
    $ kvg fetch
    origin: handbook moved, 12 objects
    $ kvg diff handbook origin/handbook
    """
}
