"""``kvg mv``."""

from collections.abc import Iterable
from typing import Annotated

from kvg.cli.declare import Argument, Context
from kvg.cli.invocation import invocation
from kvg.flow.records import Record


def mv(
    ctx: Context,
    old: Annotated[str, Argument(metavar="OLD", help="The ref.")],
    new: Annotated[str, Argument(metavar="NEW", help="Its new name.")],
) -> Iterable[Record]:
    """Rename a ref."""
    from kvg.flow.refs import mv as flow

    run = invocation(ctx)
    return flow(run.store, run.settings, old, new)


COMMANDS = {"mv": mv}
EXAMPLES = {
    "mv": """
    $ kvg mv handbook docs/handbook
    """
}
