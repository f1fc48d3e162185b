"""``kvg audit``."""

from pathlib import Path
from typing import Annotated

from kvg.cli.declare import Context, Option
from kvg.cli.invocation import invocation
from kvg.flow.records import Record


def audit(
    ctx: Context,
    html: Annotated[
        Path | None,
        Option("--html", metavar="FILE", help="Write it as one page for a browser too."),
    ] = None,
    results: Annotated[
        list[Path] | None,
        Option("--results", metavar="PATH", help="A file or folder of published figures to show."),
    ] = None,
) -> Record:
    """Show everything at once, and what was not checked.

    Checks every byte, signature and rule, as kvg verify does, and lists who signed what, which
    gates passed on which evidence, replays, and the log; with --results every published figure with
    the digests behind it. What is damaged is named first, what is sound beside it is told all the
    same. Needs no model. The page needs no network and no scripts.
    """
    from kvg import durable
    from kvg.flow.audit import audit as flow
    from kvg.flow.settings import open_damaged

    run = invocation(ctx)
    settings = run.damaged_settings
    target = None if html is None else settings.cwd / html
    if target is not None:
        durable.check_target(target, option="--html")
    store, faults = open_damaged(settings)
    record = flow(store, settings, tuple(results or ()), faults=faults)
    if target is not None:
        from kvg.cli.render.audit_page import page_of

        durable.replace(
            target, [page_of(record).encode("utf-8", "backslashreplace")], staging=target.parent
        )
    return record


COMMANDS = {"audit": audit}
EXAMPLES = {
    "audit": """
    $ kvg audit
    $ kvg audit --html audit.html --results bench/results
    $ kvg audit --json | jq -r '.unchecked[]'
    """
}
