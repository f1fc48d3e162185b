"""``kvg show``."""

from typing import Annotated

from kvg.cli.declare import Argument, Context
from kvg.cli.invocation import invocation
from kvg.flow.records import Record


def show(
    ctx: Context,
    ref: Annotated[str, Argument(metavar="REF", help="A ref, REF@{n} or a digest.")],
) -> Record:
    """Show one artifact.

    And why it is stale, if it is. With --json all fields of its manifest, what is attested, and the
    outcome of each kind of check.
    """
    from kvg.flow.show import show as flow

    run = invocation(ctx)
    return flow(run.store, ref, run.settings.cwd)


COMMANDS = {"show": show}
EXAMPLES = {
    "show": """
    $ kvg show handbook
    $ kvg show handbook --json | jq .tokens.count
    """
}
