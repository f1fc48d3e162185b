"""``kvg init``."""

from pathlib import Path
from typing import Annotated

from kvg.cli.declare import Argument, Context, Option
from kvg.cli.invocation import invocation
from kvg.errors import UsageError
from kvg.flow.records import Record


def init(
    ctx: Context,
    folder: Annotated[
        Path | None, Argument(metavar="DIR", help="Where to make it; here if left out.")
    ] = None,
    bare: Annotated[
        bool, Option("--bare", help="Make DIR itself the store, to be used as a remote.")
    ] = False,
    shared: Annotated[
        str | None,
        Option("--shared", metavar="group", help="Let the group of DIR read and write it."),
    ] = None,
) -> Record:
    """Make a store.

    Doing it again is harmless. The key that signs the store's log is kept with your own keys; in a
    shared store, whoever publishes needs it too.
    """
    from kvg.flow.init import init as flow

    if shared not in (None, "group"):
        raise UsageError(f"--shared {shared}: not group", hint="kvg init --shared group")
    return flow(invocation(ctx).settings, folder, bare=bare, shared=shared is not None)


COMMANDS = {"init": init}
EXAMPLES = {
    "init": """
    $ kvg init
    initialised .kvg
    $ kvg init --bare /mnt/share
    $ kvg init --shared group
    """
}
