"""``kvg forget``."""

from collections.abc import Iterable
from typing import Annotated

import typer

from kvg.cli.invocation import invocation
from kvg.flow.records import Record


def forget(
    ctx: typer.Context,
    refs: Annotated[list[str], typer.Argument(metavar="REF", help="Refs or digests.")],
) -> Iterable[Record]:
    """Remove the content of an artifact for good.

    Its names, token ids, sources, attestations and every page that only it uses; the log keeps a
    tombstone with its digest. What other artifacts need stays and is listed. Proved by kvg fsck
    and by a search of every file of the store for bytes of what went, in stored and raw form.
    Copies elsewhere, and what the disk keeps of deleted files, are beyond it.
    """
    from kvg.flow.forget import forget as flow

    run = invocation(ctx)
    return flow(run.store, run.settings, refs)


COMMANDS = {"forget": forget}
EXAMPLES = {
    "forget": """
    $ kvg forget handbook --dry-run
    $ kvg forget handbook
    forgotten: sha256:9f2ab1…  (handbook)  29 objects, 74.3 MiB; nothing of it found
    """
}
