"""``kvg ask``."""

from collections.abc import Iterable
from typing import Annotated

from kvg.cli.declare import Argument, Context
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
from kvg.cli.verbs.seating import At, SessionName, SlotNumber, check_seat
from kvg.flow.records import Record
from kvg.flow.requests import MAX_NEW_TOKENS, AskRequest


def ask(
    ctx: Context,
    ref: Annotated[str, Argument(metavar="REF", help="A ref, REF@{n} or a digest.")],
    question: Annotated[str, Argument(metavar="QUESTION", help="The question.")],
    max_tokens: MaxTokens = MAX_NEW_TOKENS,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    seed: Seed = None,
    stop: Stop = None,
    stream: Stream = False,
    require: Require = None,
    at: At = None,
    session: SessionName = None,
    slot: SlotNumber = None,
) -> Iterable[Record]:
    """Graft a ref and answer a question.

    The question goes through the model's chat template. The answer goes to standard output, one
    line about the graft to standard error.
    """
    check_seat(session, slot)
    run = invocation(ctx)
    request = AskRequest(
        ref=ref,
        question=question,
        sampling=sampling(max_tokens, temperature, top_p, seed, stop),
        stream=stream,
        at=at,
        require=tuple(require or ()),
    )
    if session is not None:
        from kvg.flow.through import compute

        return compute(run.link(session), request, slot)
    from kvg.flow.ask import ask as flow

    return flow(run.store, run.settings, request)


COMMANDS = {"ask": ask}
EXAMPLES = {
    "ask": """
    $ kvg ask handbook "What does with do?"
    It runs a block inside a context manager.
    $ kvg ask handbook "What does with do?" --json | jq .exact
    $ kvg ask handbook "What does with do?" --session desk --slot 0
    $ kvg ask handbook "And without it?" --session desk --slot 0 --at 6470
    """
}
