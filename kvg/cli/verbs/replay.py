"""``kvg replay``."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from kvg.cli.declare import Argument, Context, Option
from kvg.cli.invocation import invocation
from kvg.cli.verbs.seating import SessionName, SlotNumber, check_seat
from kvg.flow.records import Record
from kvg.flow.requests import ReplayRequest


def replay(
    ctx: Context,
    refs: Annotated[list[str] | None, Argument(metavar="REF", help="Refs or digests.")] = None,
    samples: Annotated[
        int, Option("--samples", metavar="N", min=1, help="Prompts for each ref; 5.")
    ] = 5,
    prompts: Annotated[
        Path | None,
        Option("--prompts", metavar="F", help="A file of prompts, JSON Lines."),
    ] = None,
    reference: Annotated[
        Literal["invariant", "scheduled"] | None,
        Option("--reference", metavar="invariant|scheduled", help="The definition of fresh."),
    ] = None,
    sign: Annotated[bool, Option("--sign", help="Attest the result.")] = False,
    key: Annotated[
        str | None, Option("--key", metavar="K", help="The signing key: name or key id.")
    ] = None,
    session: SessionName = None,
    slot: SlotNumber = None,
) -> Iterable[Record]:
    """Compare graft against fresh, bit for bit.

    Each prompt runs twice, after a graft and from nothing; logits and pages are compared byte by
    byte. Anything unequal is exit code 11. With --slot it is the conversation in a session's slot
    that is compared with a fresh computation of its tokens.
    """
    check_seat(session, slot)
    run = invocation(ctx)
    request = ReplayRequest(
        tuple(refs or ()), samples, prompts, reference, sign, key, slot=slot is not None
    )
    if session is not None:
        from kvg.flow.through import compute, with_texts

        given = with_texts(run.settings, request) if prompts is not None else request
        return compute(run.link(session), given, slot)
    from kvg.flow.replay import replay as flow

    return flow(run.store, run.settings, request)


COMMANDS = {"replay": replay}
EXAMPLES = {
    "replay": """
    $ kvg replay handbook --samples 5
    5 of 5 equal  KL 0  argmax 100 %  26 of 26 pages equal
    $ kvg replay handbook --prompts mine.jsonl --sign
    $ kvg replay --session desk --slot 0
    """
}
