"""``kvg reindex``."""

from kvg.cli.declare import Context
from kvg.cli.invocation import invocation
from kvg.flow.records import Record


def reindex(ctx: Context) -> Record:
    """Rebuild the index from the files.

    The index is a cache: nothing is lost with it.
    """
    from kvg.flow.reindex import reindex as flow

    return flow(invocation(ctx).store)


COMMANDS = {"reindex": reindex}
EXAMPLES = {
    "reindex": """
    $ kvg reindex
    """
}
