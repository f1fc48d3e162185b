"""``kvg diff``."""

from collections.abc import Iterable
from typing import Annotated

from kvg.cli.declare import Argument, Context
from kvg.cli.invocation import invocation
from kvg.flow.records import Record


def diff(
    ctx: Context,
    a: Annotated[str, Argument(metavar="A", help="A ref, REF@{n} or a digest.")],
    b: Annotated[str, Argument(metavar="B", help="Another one.")],
) -> Iterable[Record]:
    """Compare two artifacts.

    Fields of the manifests that differ, the first token id that does, and what both share.
    """
    from kvg.flow.diff import diff as flow

    return flow(invocation(ctx).store, a, b)


COMMANDS = {"diff": diff}
EXAMPLES = {
    "diff": """
    $ kvg diff handbook@{1} handbook
    """
}
