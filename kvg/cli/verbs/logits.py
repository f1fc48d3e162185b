"""``kvg logits``."""

from pathlib import Path
from typing import Annotated, Literal

from kvg.cli.declare import Argument, Context, Option
from kvg.cli.invocation import invocation
from kvg.cli.verbs.seating import SessionName, SlotNumber, check_seat
from kvg.flow.records import Record
from kvg.flow.requests import LogitsRequest


def logits(
    ctx: Context,
    ref: Annotated[str | None, Argument(metavar="REF", help="A ref, REF@{n} or a digest.")] = None,
    model: Annotated[str | None, Option("--model", metavar="M", help="A registered model.")] = None,
    prompt: Annotated[
        str | None, Option("--prompt", metavar="T", help="The text after the artifact's.")
    ] = None,
    fresh: Annotated[bool, Option("--fresh", help="Compute without the store's pages.")] = False,
    reference: Annotated[
        Literal["invariant", "scheduled"] | None,
        Option("--reference", metavar="invariant|scheduled", help="The definition of fresh."),
    ] = None,
    out: Annotated[
        Path | None,
        Option("--out", metavar="FILE.safetensors", help="Write the logits here."),
    ] = None,
    session: SessionName = None,
    slot: SlotNumber = None,
) -> Record:
    """Compute raw logits and their digest, grafted or fresh.

    The logits are those of the last position of the artifact's tokens and the prompt's, in the
    model's own number format; the digest is of their raw bytes.
    """
    check_seat(session, slot)
    run = invocation(ctx)
    if session is not None and out is not None:
        out = out.absolute()
    request = LogitsRequest(ref, model, prompt, fresh, reference, out)
    if session is not None:
        from kvg.flow.through import compute_one

        return compute_one(run.link(session), request, slot)
    from kvg.flow.logits import logits as flow

    return flow(run.store, run.settings, request)


COMMANDS = {"logits": logits}
EXAMPLES = {
    "logits": """
    $ kvg logits handbook --prompt "In short: "
    $ kvg logits handbook --prompt "In short: " --fresh
    $ kvg logits --model smol --prompt "Once upon a time" --out logits.safetensors
    """
}
