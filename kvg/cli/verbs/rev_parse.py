"""``kvg rev-parse``."""

from collections.abc import Iterable
from typing import Annotated

from kvg.cli.declare import Argument, Context
from kvg.cli.invocation import invocation
from kvg.flow.records import Record


def rev_parse(
    ctx: Context,
    names: Annotated[
        list[str], Argument(metavar="NAME", help="Refs, REF@{n} or digests cut short.")
    ],
) -> Iterable[Record]:
    """Print the digest a name stands for."""
    from kvg.flow.refs import rev_parse as flow

    return flow(invocation(ctx).store, names)


COMMANDS = {"rev-parse": rev_parse}
EXAMPLES = {
    "rev-parse": """
    $ kvg rev-parse handbook
    $ kvg rev-parse handbook@{1} sha256:9f2ab1
    """
}
