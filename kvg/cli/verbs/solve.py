"""``kvg solve``."""

from pathlib import Path
from typing import Annotated

import typer

from kvg.cli.invocation import invocation
from kvg.cli.values import NoSandbox, problem_text
from kvg.flow.records import Record


def solve(
    ctx: typer.Context,
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="The problem; - is standard input.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="A file with the problem.")
    ] = None,
    constraint: Annotated[
        str | None,
        typer.Option("--constraint", metavar="C", help="A Python expression over s0, s1, …"),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="N", help="A name for the next slot; may be repeated."),
    ] = None,
    no_sandbox: NoSandbox = False,
) -> Record:
    """Answer a problem by the stored method of its family.

    The method is found by the exact structure of the problem, verified, and run in the sandbox; no
    token is generated. Exit code 3 when there is none.
    """
    from kvg.flow.solve import solve as flow

    words = problem_text(Path("-"), None) if text == "-" else problem_text(file, text)
    run = invocation(ctx)
    return flow(
        run.store,
        run.settings,
        words,
        constraint=constraint,
        names=name or (),
        no_sandbox=no_sandbox,
    )


COMMANDS = {"solve": solve}
EXAMPLES = {
    "solve": """
    $ kvg solve "Sum the integers from 100 to 2000."
    1996050
    $ kvg solve --file problem.txt --json
    """
}
