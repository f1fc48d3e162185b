"""``kvg du``."""

from collections.abc import Iterable
from typing import Annotated

from kvg.cli.declare import Argument, Context
from kvg.cli.invocation import invocation
from kvg.flow.records import Record


def du(
    ctx: Context,
    refs: Annotated[
        list[str] | None, Argument(metavar="REF", help="Refs or digests; all refs if none.")
    ] = None,
) -> Iterable[Record]:
    """Show what artifacts take on disk.

    The second size is what only this artifact needs: what gc would free without it. Then the store
    as a whole.
    """
    from kvg.flow.du import du as flow

    return flow(invocation(ctx).store, refs or ())


COMMANDS = {"du": du}
EXAMPLES = {
    "du": """
    $ kvg du
    handbook       74.3 MiB     74.3 MiB  sha256:9f2ab1…
    store: 74.9 MiB on disk: 28 objects 74.3 MiB, temporary 0 B, log 1.2 KiB, …
    """
}
