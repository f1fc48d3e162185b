"""``kvg tag``."""

from typing import Annotated

from kvg.cli.declare import Argument, Context, Option
from kvg.cli.invocation import invocation
from kvg.flow.records import Record


def tag(
    ctx: Context,
    name: Annotated[str, Argument(metavar="NAME", help="The new ref.")],
    target: Annotated[
        str, Argument(metavar="TARGET", help="What it stands for: a ref or a digest.")
    ],
    force: Annotated[
        bool, Option("-f", "--force", help="Move a ref that stands for another one.")
    ] = False,
) -> Record:
    """Give an artifact a name."""
    from kvg.flow.refs import tag as flow

    run = invocation(ctx)
    return flow(run.store, run.settings, name, target, force=force)


COMMANDS = {"tag": tag}
EXAMPLES = {
    "tag": """
    $ kvg tag handbook/v1 handbook
    $ kvg tag -f stable sha256:9f2ab1
    """
}
