"""``kvg fsck``."""

from collections.abc import Iterable
from typing import Annotated

from kvg.cli.declare import Context, Option
from kvg.cli.invocation import invocation
from kvg.flow.records import Record


def fsck(
    ctx: Context,
    repair: Annotated[
        bool, Option("--repair", help="Move bad objects away, fetch lost ones.")
    ] = False,
) -> Iterable[Record]:
    """Check every file of the store against every other.

    Objects, the log, the trust file, the index, and that nothing is missing that is named, or that
    a method needs. It goes on after a fault and names each. --repair deletes nothing: bad objects
    are moved into the store's folder lost-found, what is lost is fetched from the remotes that have
    it, and a broken index is made anew. What lay behind a fault may have one of its own: kvg fsck
    again tells what is left, and a second --repair mends it. Signatures and policy are a matter
    of kvg verify.
    """
    from kvg.flow.fsck import fsck as flow
    from kvg.flow.settings import open_damaged

    run = invocation(ctx)
    store, faults = open_damaged(run.damaged_settings)
    return flow(store, run.damaged_settings, repair=repair, faults=faults)


COMMANDS = {"fsck": fsck}
EXAMPLES = {
    "fsck": """
    $ kvg fsck
    28 objects, 1 artifact, log of 3: no faults
    $ kvg fsck --repair
    """
}
