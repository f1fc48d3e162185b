"""``kvg verify``."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from kvg.cli.declare import Argument, Context, Option
from kvg.cli.invocation import invocation
from kvg.cli.values import known_gates, parse_percent
from kvg.flow.records import Record


def verify(
    ctx: Context,
    refs: Annotated[
        list[str] | None,
        Argument(metavar="REF", help="Refs or digests; all refs and methods if none."),
    ] = None,
    require: Annotated[
        list[str] | None,
        Option(
            "--require", metavar="GATE", callback=known_gates, help="A gate that must have passed."
        ),
    ] = None,
    expect_digest: Annotated[
        str | None,
        Option("--expect-digest", metavar="D", help="What the one ref must stand for."),
    ] = None,
    recompute: Annotated[
        str | None,
        Option(
            "--recompute", metavar="P%", help="Compute this part of the pages again; needs a model."
        ),
    ] = None,
    lock: Annotated[
        Path | None,
        Option("--lock", metavar="FILE", help="Refs must stand for what this file says."),
    ] = None,
) -> Iterable[Record]:
    """Check bytes, signatures, policy and log.

    Reads every byte of every artifact, and of every method its program, checker and proof; needs no
    model, and runs no proof again. It goes on after a problem, lists all of
    them, and the most severe decides the exit code. Whether the stored state is what the model
    computes, --recompute answers: pages drawn by chance are computed again from the tokens. So a
    lie is found whoever signed it.
    """
    from kvg.flow.verify import verify as flow

    run = invocation(ctx)
    return flow(
        run.checked_store,
        run.settings,
        refs or (),
        require=require or (),
        expect_digest=expect_digest,
        recompute=None if recompute is None else parse_percent(recompute, option="--recompute"),
        lock=lock,
    )


COMMANDS = {"verify": verify}
EXAMPLES = {
    "verify": """
    $ kvg verify
    1 artifact: bytes ok, signature ok, policy ok; truth not recomputed
    $ kvg verify --recompute 5%
    1 artifact: bytes ok, signature ok, policy ok; truth of 2 pages recomputed
    $ kvg verify --lock kvg.lock
    $ kvg verify handbook --expect-digest sha256:9f2ab1 --require test
    """
}
