"""``kvg family``."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from kvg.cli.declare import Argument, Context, Option
from kvg.cli.invocation import invocation
from kvg.cli.values import problem_text
from kvg.errors import NotFound
from kvg.flow.records import Record

if TYPE_CHECKING:
    from kvg.cli.invocation import Invocation
    from kvg.store import Store


def hash_(
    ctx: Context,
    file: Annotated[
        Path | None,
        Argument(metavar="FILE", help="A file with the problem; - is standard input."),
    ] = None,
    text: Annotated[str | None, Option("--text", metavar="T", help="The problem.")] = None,
    constraint: Annotated[
        str | None,
        Option("--constraint", metavar="C", help="A Python expression over s0, s1, …"),
    ] = None,
    name: Annotated[
        list[str] | None,
        Option("--name", metavar="N", help="A name for the next slot; may be repeated."),
    ] = None,
    explain: Annotated[
        bool, Option("--explain", help="Show how the nearest stored structures differ.")
    ] = False,
) -> Record:
    """Print the exact address of a problem.

    Literals become typed slots; what they are does not count, everything else does.
    """
    from kvg.flow.family import hash_family

    run = invocation(ctx)
    return hash_family(
        _store(run),
        problem_text(file, text, ways="FILE, - or --text T"),
        constraint=constraint,
        names=name or (),
        explain=explain,
    )


def show(
    ctx: Context,
    family: Annotated[
        str, Argument(metavar="FAMILY", help="Its digest, or 6 or more hex digits of it.")
    ],
) -> Record:
    """Show one family."""
    from kvg.flow.family import show_family

    return show_family(invocation(ctx).store, family)


def list_(ctx: Context) -> Iterable[Record]:
    """List the families that the store knows.

    Those that it can answer, and those that it has artifacts for.
    """
    from kvg.flow.family import list_families

    return list_families(invocation(ctx).store)


def _store(run: "Invocation") -> "Store | None":
    """The store if there is one: an address needs none."""
    try:
        return run.store
    except NotFound:
        if run.given.store is not None:
            raise
        return None


COMMANDS = {"hash": hash_, "show": show, "list": list_}
EXAMPLES = {
    "hash": """
    $ kvg family hash --text "Sum the integers from 3 to 9."
    sha256:91b4fdf3b6d4c466fe8dae8cbd40a2347ddcd20e9c4cc8b66b2bbd87303855a1
    $ kvg family hash --text "Given 4 and 9." --constraint "a <= b" --name a --name b
    $ kvg family hash problem.txt --explain
    """,
    "show": """
    $ kvg family show sha256:91b4fd
    """,
    "list": """
    $ kvg family list
    """,
}
