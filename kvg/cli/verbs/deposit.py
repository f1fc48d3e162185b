"""``kvg deposit``."""

from pathlib import Path
from typing import Annotated, Literal

from kvg.cli.declare import Argument, Context, Option
from kvg.cli.invocation import invocation, stdin_bytes
from kvg.cli.values import STDIN, NoSandbox, parse_moment, parse_numbers, split_ref_and_files
from kvg.cli.verbs.seating import SessionName, SlotNumber, check_seat
from kvg.errors import UsageError
from kvg.flow.records import Record
from kvg.flow.requests import PAGE_TOKENS, DepositRequest


def deposit(
    ctx: Context,
    words: Annotated[
        list[str] | None,
        Argument(
            metavar="[REF] FILE…",
            help="The ref (a file's stem if left out) and the files, joined in order; - reads "
            "standard input. With --text or --chat only the ref.",
        ),
    ] = None,
    model: Annotated[str | None, Option("--model", metavar="M", help="A registered model.")] = None,
    text: Annotated[str | None, Option("--text", metavar="T", help="The text itself.")] = None,
    chat: Annotated[
        Path | None,
        Option("--chat", metavar="FILE.json", help="A JSON list of chat messages."),
    ] = None,
    gate: Annotated[
        list[str] | None,
        Option("--gate", metavar="SPEC", help="A check to pass first, as kvg gate list has them."),
    ] = None,
    no_sandbox: NoSandbox = False,
    family: Annotated[
        Path | None,
        Option("--family", metavar="FILE", help="A file with the problem that it answers."),
    ] = None,
    parent: Annotated[
        str | None, Option("--parent", metavar="REF", help="What this one descends from.")
    ] = None,
    reference: Annotated[
        Literal["invariant", "scheduled"] | None,
        Option(
            "--reference",
            metavar="invariant|scheduled",
            help="The definition of fresh that exactness is measured against.",
        ),
    ] = None,
    page_tokens: Annotated[
        int, Option("--page-tokens", metavar="N", min=1, help="Tokens in a page; 256.")
    ] = PAGE_TOKENS,
    cut_points: Annotated[
        str | None,
        Option("--cut-points", metavar="N,…", help="Positions at which a graft may stop short."),
    ] = None,
    key: Annotated[
        str | None, Option("--key", metavar="K", help="The signing key: name or key id.")
    ] = None,
    no_source: Annotated[
        bool, Option("--no-source", help="Do not attest where the text came from.")
    ] = False,
    valid_until: Annotated[
        str | None,
        Option("--valid-until", metavar="T", help="When the text goes stale: a date, 30d."),
    ] = None,
    depends: Annotated[
        list[Path] | None,
        Option(
            "--depends",
            metavar="FILE",
            help="A file that the text depends on, in the store's folder or here.",
        ),
    ] = None,
    schema_version: Annotated[
        str | None,
        Option(
            "--schema-version",
            metavar="V",
            help="What its data hold to; stale when the setting freshness.schema is another.",
        ),
    ] = None,
    session: SessionName = None,
    slot: SlotNumber = None,
) -> Record:
    """Compute a text once, sign it and store it under a ref.

    A text that is there already computes nothing; one that starts with a stored text computes only
    what follows its whole pages. The first deposit makes a signing key. On a terminal it prints
    what was done, elsewhere the bare digest. --dry-run tells what there would be to compute, and
    runs no gate. With --session and --slot the conversation in a slot becomes an artifact as it
    stands.
    """
    check_seat(session, slot)
    if session is not None and slot is None:
        raise UsageError(f"--session {session}: which slot?", hint="give --slot I")
    run = invocation(ctx)
    has_source = text is not None or chat is not None or slot is not None
    ref, files = split_ref_and_files(words or [], has_source=has_source)
    stdin = stdin_bytes() if files == [STDIN] else None
    request = DepositRequest(
        ref=ref or default_ref(files, chat),
        model=model,
        files=() if stdin is not None else tuple(Path(name) for name in files),
        text=text,
        chat=chat,
        stdin=stdin,
        parent=parent,
        reference=reference,
        page_tokens=page_tokens,
        cut_points=parse_numbers(cut_points, option="--cut-points"),
        key=key,
        no_source=no_source,
        valid_until=None
        if valid_until is None
        else parse_moment(valid_until, option="--valid-until", ahead=True),
        depends=tuple(depends or ()),
        schema_version=schema_version,
        gates=tuple(gate or ()),
        no_sandbox=no_sandbox,
        family=family,
        slot=slot is not None,
    )
    if session is not None:
        from kvg.flow.through import compute_one, with_paths

        return compute_one(run.link(session), with_paths(run.settings, request), slot)
    from kvg.flow.deposit import deposit as deposit_now
    from kvg.flow.deposit import plan_deposit

    flow = plan_deposit if run.settings.dry_run else deposit_now
    return flow(run.store, run.settings, request)


def default_ref(files: list[str], chat: Path | None) -> str:
    """The ref that a source's name gives. Raises ``UsageError`` where it has none."""
    from kvg.store.names import ref_from_stem

    source = chat or (Path(files[0]) if files and files[0] != STDIN else None)
    if source is None:
        raise UsageError("deposit: no ref", hint="kvg deposit NAME FILE, or NAME --text TEXT")
    return ref_from_stem(source.stem)


COMMANDS = {"deposit": deposit}
EXAMPLES = {
    "deposit": """
    $ kvg deposit handbook.md
    handbook  sha256:9f2ab1…  6,412 tokens  26 pages  gates: none
    $ kvg deposit docs/handbook intro.md body.md
    $ kvg deposit facts --text "The river is 120 km long." --model smol
    $ kvg deposit talk --chat talk.json
    $ git show HEAD:README.md | kvg deposit readme -
    $ digest=$(kvg deposit handbook.md | cat)
    $ kvg deposit talk --session desk --slot 0
    $ kvg deposit answer --chat answer.json --gate "cmd:python3 check.py"
    """
}
