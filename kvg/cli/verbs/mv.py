"""``kvg mv``."""

from collections.abc import Iterable
from typing import Annotated

import typer

from kvg.cli.invocation import invocation
from kvg.flow.records import Record


def mv(
    ctx: typer.Context,
    old: Annotated[str, typer.Argument(metavar="OLD", help="The ref.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")],
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
