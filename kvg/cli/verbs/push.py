"""``kvg push``."""

from collections.abc import Iterable
from typing import Annotated

from kvg.cli.declare import Argument, Context, Option
from kvg.cli.invocation import invocation
from kvg.flow.records import Record


def push(
    ctx: Context,
    remote: Annotated[
        str | None, Argument(metavar="REMOTE", help="Its name here; origin if left out.")
    ] = None,
    refs: Annotated[
        list[str] | None, Argument(metavar="REF", help="Refs; all of yours if none.")
    ] = None,
    verify: Annotated[
        bool, Option("--verify", help="Read back and check every byte there.")
    ] = False,
    delete: Annotated[bool, Option("--delete", help="Take the named refs off the remote.")] = False,
) -> Iterable[Record]:
    """Bring refs and all they need to a remote.

    Only what is missing there moves; refs last, and fast-forward only: where the remote has gone on
    meanwhile, pull first. Whoever can read the remote can read the token ids of what is pushed.

    Of refs that move, and of those that are named, it is asked whether each object lies there under
    its own header and as long as that says. Bytes that were changed in place are noticed by whoever
    pulls them, not by a push. With --verify all of it is read back, and what is damaged or gone is
    put there anew; where a registry keeps a damaged blob all the same, that is told.

    What somebody took off there, as a fetch or pull has seen, is put back where it is named, or
    moved here since; a push without names leaves it off, and says so.

    A remote that is a store with a quota keeps within it: what has no room there is refused before
    it is written (exit 10), and no ref moves.

    What lies in the place of a ref and can't be one, or stands for no value of it, is replaced, and
    --delete takes it off.
    """
    from kvg.flow.push import push as flow

    run = invocation(ctx)
    return flow(run.store, run.settings, remote, refs or (), delete=delete, read_back=verify)


COMMANDS = {"push": push}
EXAMPLES = {
    "push": """
    $ kvg push
    origin: handbook new, 28 objects
    $ kvg push origin handbook --verify
    $ kvg push origin --delete old/draft
    """
}
