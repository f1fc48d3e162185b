"""``kvg forget``."""

from collections.abc import Iterable
from typing import Annotated

from kvg.cli.declare import Argument, Context, Option
from kvg.cli.invocation import invocation
from kvg.flow.records import Record


def forget(
    ctx: Context,
    refs: Annotated[list[str], Argument(metavar="REF", help="Refs or digests.")],
    remote: Annotated[
        str | None,
        Option("--remote", metavar="NAME", help="Then the same on this remote, the log included."),
    ] = None,
) -> Iterable[Record]:
    """Remove the content of an artifact for good.

    Its names, token ids, sources, attestations and every page that only it uses; the log keeps a
    tombstone with its digest. What other artifacts need stays and is listed. Proved by kvg fsck
    and by a search of every file of the store for bytes of the token ids, pages and sources that
    went, in stored and raw form. Copies of its manifest and attestations are not searched for: they
    hold digests and names. A file that holds such bytes and that nothing needs is named; it is to
    be removed by hand, and each kvg forget of the digest looks again until nothing is found.
    Damaged copies in lost-found go too. Where its manifest can't be read, nothing is proved, and
    that is told until nothing is left in the store that may be of it.
    Copies elsewhere, what a session of the store has in memory until it is stopped, and what the
    disk keeps of deleted files, are beyond it.

    With --remote the remote drops the refs that stand for it and every object only it uses there,
    and gets the tombstone. What can't be removed there (it can only be read, another publisher's
    ref stands for it, a registry that deletes nothing) is told, and decides the exit code; the same
    command again goes on. Not while somebody pushes there.
    """
    from kvg.flow.forget import forget as flow

    run = invocation(ctx)
    return flow(run.store, run.settings, refs, remote=remote)


COMMANDS = {"forget": forget}
EXAMPLES = {
    "forget": """
    $ kvg forget handbook --dry-run
    $ kvg forget handbook
    forgotten: sha256:9f2ab1…  (handbook)  29 objects, 74.3 MiB; nothing of it found
    $ kvg forget notes --remote origin
    origin: forgotten sha256:1b07c4…  (notes)  29 objects, 74.3 MiB
    """
}
