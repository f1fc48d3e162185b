"""``kvg prereg``."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from kvg.cli.declare import Argument, Context, Option
from kvg.cli.invocation import invocation
from kvg.flow.records import Record

Target = Annotated[
    str, Argument(metavar="DIGEST|FILE", help="A preregistration, or a copy of one.")
]


def create(
    ctx: Context,
    refs: Annotated[list[str], Argument(metavar="REF", help="Refs or digests.")],
    samples: Annotated[
        int, Option("--samples", metavar="N", min=1, help="Prompts for each ref; 5.")
    ] = 5,
    out: Annotated[
        Path | None, Option("-o", "--out", metavar="FILE", help="Write a copy here.")
    ] = None,
) -> Record:
    """Commit to the digests of a run before it is run.

    Inputs, model, engine, pages and the logits after N prompts, computed afresh, become an object
    whose digest is logged. Whoever has the artifact can then run it and compare.
    """
    from kvg.flow.prereg import PreregRequest, create_prereg

    run = invocation(ctx)
    return create_prereg(run.store, run.settings, PreregRequest(tuple(refs), samples, out))


def run(
    ctx: Context,
    target: Target,
    logged: Annotated[
        bool, Option("--logged", help="Refuse one that is not in this store's log.")
    ] = False,
) -> Iterable[Record]:
    """Run it here and compare with what was expected.

    Every field is compared: exit code 11 on any other digest or count, 7 on another model or
    engine. A file may come from another store: that what it says is true is then shown, not that
    it was written before the run; a warning and the last line say so. With --logged such a file
    is refused, exit code 6: rely on that where the time matters.
    """
    from kvg.flow.prereg import run_prereg

    call = invocation(ctx)
    return run_prereg(call.store, call.settings, target, logged=logged)


def show(ctx: Context, target: Target) -> Record:
    """Show what a preregistration expects."""
    from kvg.flow.prereg import show_prereg

    call = invocation(ctx)
    return show_prereg(call.store, call.settings, target)


COMMANDS = {"create": create, "run": run, "show": show}
EXAMPLES = {
    "create": """
    $ kvg prereg create handbook --samples 50 -o expected.json
    """,
    "run": """
    $ kvg prereg run expected.json
    50 of 50 as expected, grafted and fresh; 26 of 26 pages equal
    $ kvg prereg run expected.json --logged
    """,
    "show": """
    $ kvg prereg show sha256:9f2ab1
    """,
}
