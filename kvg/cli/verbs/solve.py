"""``kvg solve``."""

from pathlib import Path
from typing import Annotated

from kvg.cli.declare import Argument, Context, Option
from kvg.cli.invocation import invocation
from kvg.cli.values import NoSandbox, parse_moment, problem_text
from kvg.cli.verbs.sampling import Require
from kvg.flow.records import Record


def solve(
    ctx: Context,
    text: Annotated[
        str | None, Argument(metavar="TEXT", help="The problem; - is standard input.")
    ] = None,
    file: Annotated[
        Path | None, Option("--file", metavar="FILE", help="A file with the problem.")
    ] = None,
    constraint: Annotated[
        str | None,
        Option("--constraint", metavar="C", help="A Python expression over s0, s1, …"),
    ] = None,
    name: Annotated[
        list[str] | None,
        Option("--name", metavar="N", help="A name for the next slot; may be repeated."),
    ] = None,
    model: Annotated[
        str | None,
        Option("--model", metavar="M", help="A registered model, which tries on a miss."),
    ] = None,
    learn: Annotated[
        bool, Option("--learn", help="Deposit what passed; the default model tries.")
    ] = False,
    checker: Annotated[
        Path | None,
        Option(
            "--checker", metavar="FILE", help="Ask for a program; check(answer, s0, …) -> bool."
        ),
    ] = None,
    slots: Annotated[
        Path | None, Option("--slots", metavar="FILE", help="Ranges of the slots, in JSON.")
    ] = None,
    gate: Annotated[
        list[str] | None,
        Option("--gate", metavar="SPEC", help="A check that the model's answer has to pass."),
    ] = None,
    parent: Annotated[
        str | None,
        Option("--parent", metavar="REF", help="A block, or a family's, to graft before."),
    ] = None,
    max_tokens: Annotated[
        int, Option("--max-tokens", metavar="N", min=1, help="Tokens of an answer; 256.")
    ] = 256,
    draft: Annotated[
        bool,
        Option("--draft", help="Confirm the stored tokens of this text by a forward pass."),
    ] = False,
    key: Annotated[str | None, Option("--key", metavar="K", help="The key to sign with.")] = None,
    valid_until: Annotated[
        str | None,
        Option("--valid-until", metavar="T", help="When it goes stale: a date, 30d."),
    ] = None,
    depends: Annotated[
        list[Path] | None,
        Option(
            "--depends",
            metavar="FILE",
            help="A file that the answer depends on, in the store's folder or here.",
        ),
    ] = None,
    schema_version: Annotated[
        str | None, Option("--schema-version", metavar="V", help="What its data hold to.")
    ] = None,
    require: Require = None,
    no_sandbox: NoSandbox = False,
) -> Record:
    """Answer a problem from what is stored for its structure.

    The family's method, found by the exact structure of the problem, is verified and run in the
    sandbox; without one, or where the values lie outside its ranges, the stored trace of the same
    text answers. No token is generated. Exit code 3 when there is neither. With --model the model
    then tries: with --checker it writes a program for the family, which is proved; else its answer
    has to pass each --gate. --learn deposits what passed, so that the next one is a hit.
    What did not pass a gate that --require or the store asks for is not used: exit code 6.
    """
    words = problem_text(
        Path("-") if text == "-" else file,
        None if text == "-" else text,
        ways="TEXT, - or --file FILE",
    )
    until = (
        None
        if valid_until is None
        else parse_moment(valid_until, option="--valid-until", ahead=True)
    )
    run = invocation(ctx)
    if model is None and not learn and not draft:
        from kvg.flow.solve import solve as flow

        return flow(
            run.store,
            run.settings,
            words,
            constraint=constraint,
            names=name or (),
            require=require or (),
            no_sandbox=no_sandbox,
        )
    from kvg.flow.attempt import SolveRequest, solve_or_try

    request = SolveRequest(
        words,
        constraint,
        tuple(name or ()),
        model is not None or learn,
        model,
        learn,
        checker,
        slots,
        tuple(gate or ()),
        parent,
        max_tokens,
        draft,
        key,
        no_sandbox,
        until,
        tuple(depends or ()),
        schema_version,
        tuple(require or ()),
    )
    return solve_or_try(run.store, run.settings, request)


COMMANDS = {"solve": solve}
EXAMPLES = {
    "solve": """
    $ kvg solve "Sum the integers from 100 to 2000."
    1996050
    $ kvg solve --file problem.txt --json
    $ kvg solve "Multiply 6 by 7." --model smol --checker product.py --learn
    $ kvg solve "What is the capital of France?" --model smol --parent capitals \\
        --gate "cmd:python3 check.py" --gate consistency --learn
    $ kvg solve "What is the capital of France?" --draft
    """
}
