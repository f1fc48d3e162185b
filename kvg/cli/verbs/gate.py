"""``kvg gate``."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from kvg.cli.declare import Argument, Context, Option
from kvg.cli.invocation import invocation
from kvg.cli.values import NoSandbox, problem_text, read_bytes
from kvg.errors import UsageError
from kvg.flow.records import Record

MAX_ANSWER_BYTES = 16 << 20


def list_(ctx: Context) -> Iterable[Record]:
    """List the kinds of gates."""
    from kvg.flow.gate import list_gates

    invocation(ctx)
    return list_gates()


def run(
    ctx: Context,
    specs: Annotated[
        list[str], Argument(metavar="SPEC", help="KIND:ARGUMENT, as kvg gate list has them.")
    ],
    text: Annotated[
        str | None, Option("--text", metavar="T", help="The text that was asked.")
    ] = None,
    file: Annotated[
        Path | None, Option("--file", metavar="FILE", help="A file with it; - for stdin.")
    ] = None,
    answer: Annotated[
        str | None, Option("--answer", metavar="A", help="The answer to be checked.")
    ] = None,
    answer_file: Annotated[
        Path | None, Option("--answer-file", metavar="FILE", help="A file with it.")
    ] = None,
    no_sandbox: NoSandbox = False,
) -> Iterable[Record]:
    """Run gates on a text and an answer.

    Each runs in a sandbox without network. A checker that would pass anything is refused: it is run
    on a control as well. Nothing is stored; exit code 8 when one fails.
    """
    from kvg.flow.gate import run_gates

    if answer is not None and answer_file is not None:
        raise UsageError("give the answer once", hint="kvg gate run --help")
    given = answer.encode() if answer is not None else None
    if answer_file is not None:
        given = read_bytes(answer_file, MAX_ANSWER_BYTES)
    settings = invocation(ctx).settings
    words = problem_text(file, text, ways="--text T, --file FILE or --file -").encode()
    return run_gates(settings, specs, words, given, no_sandbox=no_sandbox)


COMMANDS = {"list": list_, "run": run}
EXAMPLES = {
    "list": """
    $ kvg gate list
    """,
    "run": """
    $ kvg gate run "cmd:python3 check.py" --file problem.txt --answer-file answer.txt
    $ kvg gate run "python-assert:int(answer) == 42" --text "What is 6 times 7?" --answer 42
    $ kvg gate run coq:goal.v --file problem.txt --answer-file proof.v
    $ kvg gate run pytest:test_add.py --text "Write add." --answer-file add.py -v
    """,
}
