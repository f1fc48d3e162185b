"""``kvg unpin``."""

from collections.abc import Iterable
from typing import Annotated

from kvg.cli.declare import Argument, Context
from kvg.cli.invocation import invocation
from kvg.flow.records import Record


def unpin(
    ctx: Context,
    targets: Annotated[list[str], Argument(metavar="REF", help="Refs or digests of artifacts.")],
) -> Iterable[Record]:
    """Let a pinned artifact go."""
    from kvg.flow.refs import pin as flow

    run = invocation(ctx)
    return flow(run.store, run.settings, targets, on=False)


COMMANDS = {"unpin": unpin}
EXAMPLES = {
    "unpin": """
    $ kvg unpin handbook
    """
}
