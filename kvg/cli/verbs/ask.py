"""``kvg ask``."""

from collections.abc import Iterable
from typing import Annotated

import typer

from kvg.cli.invocation import invocation
from kvg.cli.verbs.sampling import (
    MaxTokens,
    Require,
    Seed,
    Stop,
    Stream,
    Temperature,
    TopP,
    sampling,
)
from kvg.flow.records import Record
from kvg.flow.requests import MAX_NEW_TOKENS, AskRequest


def ask(
    ctx: typer.Context,
    ref: Annotated[str, typer.Argument(metavar="REF", help="A ref, REF@{n} or a digest.")],
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="The question.")],
    max_tokens: MaxTokens = MAX_NEW_TOKENS,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    seed: Seed = None,
    stop: Stop = None,
    stream: Stream = False,
    require: Require = None,
) -> Iterable[Record]:
    """Graft a ref and answer a question.

    The question goes through the model's chat template. The answer goes to standard output, one
    line about the graft to standard error.
    """
    from kvg.flow.ask import ask as flow

    run = invocation(ctx)
    request = AskRequest(
        ref=ref,
        question=question,
        sampling=sampling(max_tokens, temperature, top_p, seed, stop),
        stream=stream,
        require=tuple(require or ()),
    )
    return flow(run.store, run.settings, request)


COMMANDS = {"ask": ask}
EXAMPLES = {
    "ask": """
    $ kvg ask handbook "What does with do?"
    It runs a block inside a context manager.
    $ kvg ask handbook "What does with do?" --json | jq .exact
    """
}
