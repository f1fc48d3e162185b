"""``kvg gc``."""

from kvg.cli.declare import Context
from kvg.cli.invocation import invocation
from kvg.flow.records import Record


def gc(ctx: Context) -> Record:
    """Remove what nothing needs any more.

    What refs, pins, methods, trust files and preregistrations need stays, and what running
    commands rely on. It can run beside any other command, needs no free space, and goes on where
    it was interrupted. Old values of refs (REF@{1}) go; kvg pin keeps one.
    """
    from kvg.flow.gc import gc as flow

    run = invocation(ctx)
    return flow(run.store, run.settings)


COMMANDS = {"gc": gc}
EXAMPLES = {
    "gc": """
    $ kvg gc --dry-run
    would remove 26 objects, 71.2 MiB; 54 objects kept
    $ kvg gc
    """
}
