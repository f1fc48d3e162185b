"""``kvg stats``."""

from kvg.cli.declare import Context
from kvg.cli.invocation import invocation
from kvg.flow.records import Record


def stats(ctx: Context) -> Record:
    """Show the store in numbers."""
    from kvg.flow.stats import stats as flow

    return flow(invocation(ctx).store)


COMMANDS = {"stats": stats}
EXAMPLES = {
    "stats": """
    $ kvg stats
    $ kvg stats --json | jq .distinct_page_bytes
    """
}
