"""``kvg lock``."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from kvg.cli.declare import Argument, Context, Option
from kvg.cli.invocation import invocation
from kvg.flow.records import Record


def lock(
    ctx: Context,
    refs: Annotated[
        list[str] | None, Argument(metavar="REF", help="Refs; all of yours if none.")
    ] = None,
    file: Annotated[
        Path, Option("--file", metavar="FILE", help="The lock file; kvg.lock if left out.")
    ] = Path("kvg.lock"),
) -> Iterable[Record]:
    """Write down what refs stand for, for CI.

    kvg verify --lock and kvg pull --lock hold the store to it. With REFs the other lines stay.
    """
    from kvg.flow.lock import lock as flow

    run = invocation(ctx)
    return flow(run.store, run.settings, file, refs or ())


COMMANDS = {"lock": lock}
EXAMPLES = {
    "lock": """
    $ kvg lock && git add kvg.lock
    $ kvg pull --lock kvg.lock && kvg verify --lock kvg.lock
    """
}
