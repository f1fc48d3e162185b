"""``kvg pin``."""

from collections.abc import Iterable
from typing import Annotated

from kvg.cli.declare import Argument, Context
from kvg.cli.invocation import invocation
from kvg.flow.records import Record


def pin(
    ctx: Context,
    targets: Annotated[list[str], Argument(metavar="REF", help="Refs or digests of artifacts.")],
) -> Iterable[Record]:
    """Keep an artifact whatever its refs do."""
    from kvg.flow.refs import pin as flow

    run = invocation(ctx)
    return flow(run.store, run.settings, targets, on=True)


COMMANDS = {"pin": pin}
EXAMPLES = {
    "pin": """
    $ kvg pin handbook
    """
}
