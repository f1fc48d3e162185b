"""``kvg rm``."""

from collections.abc import Iterable
from typing import Annotated

from kvg.cli.declare import Argument, Context
from kvg.cli.invocation import invocation
from kvg.flow.records import Record


def rm(
    ctx: Context,
    refs: Annotated[list[str], Argument(metavar="REF", help="The refs, all or none.")],
) -> Iterable[Record]:
    """Remove refs.

    Only the names go; REF@{1} still finds what they stood for.
    """
    from kvg.flow.refs import rm as flow

    run = invocation(ctx)
    return flow(run.store, run.settings, refs)


COMMANDS = {"rm": rm}
EXAMPLES = {
    "rm": """
    $ kvg rm draft
    $ kvg rm draft --dry-run
    """
}
