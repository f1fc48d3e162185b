"""``kvg bench``."""

from collections.abc import Iterable
from typing import Annotated

import typer

from kvg.cli.invocation import invocation
from kvg.cli.values import parse_numbers
from kvg.flow.records import Record

Model = Annotated[str | None, typer.Option("--model", metavar="M", help="A registered model.")]


def exactness(
    ctx: typer.Context,
    model: Model = None,
    samples: Annotated[
        int, typer.Option("--samples", metavar="N", min=1, help="Texts of each length; 3.")
    ] = 3,
    lengths: Annotated[
        str, typer.Option("--lengths", metavar="N,…", help="Tokens; 16,255,256,257.")
    ] = "16,255,256,257",
    threads: Annotated[
        str | None, typer.Option("--threads", metavar="N,…", help="Compute threads; one and all.")
    ] = None,
    batch: Annotated[
        str, typer.Option("--batch", metavar="N,…", help="Texts side by side; 1,3.")
    ] = "1,3",
    splits: Annotated[
        str,
        typer.Option(
            "--splits",
            metavar="S,…",
            help="Of one-shot, halves, pieces, tokens and graft; all of them.",
        ),
    ] = "one-shot,halves,pieces,tokens,graft",
) -> Iterable[Record]:
    """Compute texts in every way and compare every byte.

    Samples by lengths by threads by batch by splits: the logits of the last position and all pages
    of each run against one fresh pass. With --json every input and output digest. Texts follow
    from the sample's number alone. Exit code 11 on any mismatch. The defaults take about two
    minutes for a model of 135M parameters on two cores.
    """
    from kvg.flow.bench.exactness import ExactnessRequest, bench_exactness

    run = invocation(ctx)
    request = ExactnessRequest(
        model,
        samples,
        parse_numbers(lengths, option="--lengths"),
        parse_numbers(threads, option="--threads"),
        parse_numbers(batch, option="--batch"),
        tuple(splits.split(",")),
    )
    return bench_exactness(run.store, run.settings, request)


def own_position(
    ctx: typer.Context,
    model: Model = None,
    tokens: Annotated[
        int, typer.Option("--tokens", metavar="N", min=1, help="Tokens of the graft; 200.")
    ] = 200,
    prompt_tokens: Annotated[
        int, typer.Option("--prompt-tokens", metavar="N", min=1, help="Tokens after it; 16.")
    ] = 16,
    key_tokens: Annotated[
        int,
        typer.Option("--key-tokens", metavar="N", min=2, help="Tokens whose keys are moved; 4."),
    ] = 4,
    step: Annotated[
        int, typer.Option("--step", metavar="N", min=1, help="Every N-th offset on the keys; 1.")
    ] = 1,
) -> Iterable[Record]:
    """Move a graft to other offsets and see what differs.

    Its keys are turned back and on by the model's own rotary module, in F32 and in the model's
    number format: by every offset below the window on the keys, by powers of two on the logits,
    against a fresh computation at that offset. Offsets with equal bytes are counted and listed;
    none is expected but the graft's own position. docs/own-position.md tells why.
    """
    from kvg.flow.bench.own_position import OwnPositionRequest, bench_own_position

    run = invocation(ctx)
    request = OwnPositionRequest(model, tokens, prompt_tokens, key_tokens, step)
    return bench_own_position(run.store, run.settings, request)


def select(
    ctx: typer.Context,
    families: Annotated[
        int, typer.Option("--families", metavar="N", min=1, help="Families in the store; 4,500.")
    ] = 4_500,
    lookups: Annotated[
        int, typer.Option("--lookups", metavar="N", min=1, help="Look-ups; 100,000.")
    ] = 100_000,
    large: Annotated[
        int, typer.Option("--large", metavar="N", min=0, help="A second index; 1,000,000 families.")
    ] = 1_000_000,
    solves: Annotated[
        int, typer.Option("--solves", metavar="N", min=0, help="Whole solves, warm; 50.")
    ] = 50,
    starts: Annotated[
        int, typer.Option("--starts", metavar="N", min=0, help="Runs of the command; 15.")
    ] = 15,
) -> Iterable[Record]:
    """Find the methods of many near twins by exact address.

    A store of its own, in a temporary folder, with families of which each has twins that differ in
    one word, sign, constraint or type; then look-ups of present and absent ones, a digest of what
    was asked and found for each thousand; then times. Exit code 11 when one was wrong.
    bench/similarity.py sets similarity search beside it.
    """
    from kvg.flow.bench.select import SelectRequest, bench_select

    request = SelectRequest(families, lookups, large, solves, starts)
    return bench_select(invocation(ctx).settings, request)


COMMANDS = {"exactness": exactness, "own-position": own_position, "select": select}
EXAMPLES = {
    "select": """
    $ kvg bench select
    $ kvg bench select --families 900 --lookups 2000 --large 0 --json
    """,
    "own-position": """
    $ kvg bench own-position
    $ kvg bench own-position --step 16 --json > own-position.jsonl
    """,
    "exactness": """
    $ kvg bench exactness
    $ kvg bench exactness --samples 50 --lengths 64,257,1000 --json > exactness.jsonl
    """,
}
