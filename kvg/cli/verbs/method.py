"""``kvg method``."""

from pathlib import Path
from typing import Annotated

from kvg.cli.declare import Argument, Context, Option
from kvg.cli.invocation import invocation
from kvg.cli.values import NoSandbox, parse_moment, problem_text
from kvg.flow.records import Record

Target = Annotated[
    str, Argument(metavar="METHOD", help="A method's digest or a family's, or 6 digits.")
]


def add(
    ctx: Context,
    program: Annotated[
        Path,
        Option("--program", metavar="FILE", help="Python that defines solve(s0, s1, …)."),
    ],
    checker: Annotated[
        Path,
        Option("--checker", metavar="FILE", help="Python: check(answer, s0, s1, …) -> bool."),
    ],
    text: Annotated[
        str | None, Option("--text", metavar="T", help="One problem of the family.")
    ] = None,
    file: Annotated[
        Path | None, Option("--file", metavar="FILE", help="A file with it; - for stdin.")
    ] = None,
    slots: Annotated[
        Path | None, Option("--slots", metavar="FILE", help="Ranges of the slots, in JSON.")
    ] = None,
    constraint: Annotated[
        str | None,
        Option("--constraint", metavar="C", help="A Python expression over s0, s1, …"),
    ] = None,
    name: Annotated[
        list[str] | None,
        Option("--name", metavar="N", help="A name for the next slot; may be repeated."),
    ] = None,
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
            help="A file that it depends on, in the store's folder or here.",
        ),
    ] = None,
    schema_version: Annotated[
        str | None, Option("--schema-version", metavar="V", help="What its data hold to.")
    ] = None,
    no_sandbox: NoSandbox = False,
) -> Record:
    """Prove a method and store it under its family.

    The program answers generated instances, the ends of the ranges included; the checker, which
    must not have the program in it, has to accept each answer and refuse others. A slot that never
    changes the answer rejects it. Exit code 8 when it is rejected. It answers only in the ranges of
    --slots; where these leave a side open, that is closed where the proof drew from, and told.
    """
    from kvg.flow.method import MethodRequest, add_method

    words = problem_text(file, text, ways="--text T, --file FILE or --file -")
    request = MethodRequest(
        words,
        program,
        checker,
        slots,
        constraint,
        tuple(name or ()),
        key,
        no_sandbox,
        None
        if valid_until is None
        else parse_moment(valid_until, option="--valid-until", ahead=True),
        tuple(depends or ()),
        schema_version,
    )
    run = invocation(ctx)
    return add_method(run.store, run.settings, request)


def show(ctx: Context, method: Target) -> Record:
    """Show one method."""
    from kvg.flow.method import show_method

    call = invocation(ctx)
    return show_method(call.store, method, call.settings.cwd)


def run(
    ctx: Context,
    method: Target,
    values: Annotated[
        list[str] | None, Argument(metavar="VALUE", help="The values of the slots, in order.")
    ] = None,
    no_sandbox: NoSandbox = False,
) -> Record:
    """Run a method on values.

    It is verified first, and runs in the sandbox.
    """
    from kvg.flow.solve import run_method

    call = invocation(ctx)
    return run_method(call.store, call.settings, method, values or (), no_sandbox=no_sandbox)


COMMANDS = {"add": add, "show": show, "run": run}
EXAMPLES = {
    "add": """
    $ kvg method add --text "Sum the integers from 3 to 9." --program sum.py --checker check.py \\
        --slots ranges.json   # [{"least": 1, "most": 3000}, {"least": 1, "most": 3000}]
    $ kvg method add --file problem.txt --program p.py --checker c.py --slots ranges.json
    """,
    "show": """
    $ kvg method show sha256:91b4fd
    """,
    "run": """
    $ kvg method run sha256:91b4fd 100 2000
    """,
}
