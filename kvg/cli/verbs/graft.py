"""``kvg graft``."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from kvg.cli.declare import Argument, Context, Option
from kvg.cli.invocation import invocation, stdin_bytes
from kvg.cli.values import STDIN
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
from kvg.errors import UsageError
from kvg.flow.records import Record
from kvg.flow.requests import MAX_NEW_TOKENS, GraftRequest


def graft(
    ctx: Context,
    ref: Annotated[str, Argument(metavar="REF", help="A ref, REF@{n} or a digest.")],
    dash: Annotated[
        str | None, Argument(metavar="-", help="Read the prompt from standard input.")
    ] = None,
    prompt: Annotated[
        str | None, Option("--prompt", metavar="T", help="The text to continue with.")
    ] = None,
    prompt_file: Annotated[
        Path | None, Option("--prompt-file", metavar="F", help="A file with the prompt.")
    ] = None,
    chat: Annotated[
        Path | None,
        Option("--chat", metavar="F.json", help="Messages, through the chat template."),
    ] = None,
    prompts: Annotated[
        Path | None,
        Option("--prompts", metavar="F.jsonl", help="One graft for each line's prompt."),
    ] = None,
    max_tokens: MaxTokens = MAX_NEW_TOKENS,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    seed: Seed = None,
    stop: Stop = None,
    stream: Stream = False,
    at: At = None,
    cut: Annotated[
        int | None,
        Option("--cut", metavar="N", min=1, help="Restore the first N tokens: a cut point."),
    ] = None,
    require: Require = None,
    session: SessionName = None,
    slot: SlotNumber = None,
    or_fresh: Annotated[
        str | None,
        Option("--or-fresh", metavar="MODEL", help="On a miss, compute with this model."),
    ] = None,
) -> Iterable[Record]:
    """Verify a ref, restore it and continue the text.

    The model's text goes to standard output, one line about the graft to standard error. Each graft
    proves itself: logits computed after restoring must have the digest that the artifact states,
    or it fails with exit code 7 and nothing is written. In a resident session (--session) the model
    is there already; with --slot the text stays there and can be gone on with or deposited.
    """
    check_seat(session, slot)
    if dash not in (None, STDIN):
        raise UsageError(f"{dash}: give a prompt as --prompt TEXT, or - for standard input")
    run = invocation(ctx)
    request = GraftRequest(
        ref=ref,
        prompt=prompt,
        prompt_file=prompt_file,
        chat=chat,
        prompts=prompts,
        stdin=stdin_bytes() if dash else None,
        sampling=sampling(max_tokens, temperature, top_p, seed, stop),
        stream=stream,
        at=at,
        cut=cut,
        require=tuple(require or ()),
        or_fresh=or_fresh,
    )
    if session is not None:
        from kvg.flow.through import compute, with_prompts

        if prompt is None and (dash or prompt_file or chat or prompts):
            request = with_prompts(run.settings, request)
        return compute(run.link(session), request, slot)
    from kvg.flow.graft import graft as flow

    return flow(run.store, run.settings, request)


COMMANDS = {"graft": graft}
EXAMPLES = {
    "graft": """
    $ kvg graft handbook --prompt "In short: " --max-tokens 60
    $ kvg graft handbook --prompts questions.jsonl --json > answers.jsonl
    $ echo "Summary:" | kvg graft handbook - --stream
    $ kvg graft handbook --prompt "In short: " --session desk
    $ kvg graft handbook@{1} --prompt "In short: " --require tests
    """
}
