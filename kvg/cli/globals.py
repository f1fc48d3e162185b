"""The global options.

As in the verbs, annotations are values here, not text: the parser is made from them at each start,
and to evaluate their text would take as long as all the rest of it.
"""

from pathlib import Path
from typing import Annotated, Literal

from kvg.cli.declare import Option


def declare_globals(
    directory: Annotated[
        list[Path] | None, Option("-C", metavar="DIR", help="Run as if started in DIR.")
    ] = None,
    store: Annotated[
        Path | None,
        Option(
            "--store",
            metavar="DIR",
            help="The store (KVG_STORE); else the nearest .kvg upward.",
        ),
    ] = None,
    json_: Annotated[
        bool | None, Option("--json", help="One JSON record, or JSON Lines for a stream.")
    ] = None,
    quiet: Annotated[
        bool | None, Option("-q", "--quiet", help="No notices and no progress.")
    ] = None,
    verbose: Annotated[
        bool | None, Option("-v", "--verbose", help="Say more on standard error.")
    ] = None,
    debug: Annotated[bool | None, Option("--debug", help="Show the traceback of an error.")] = None,
    no_progress: Annotated[bool | None, Option("--no-progress", help="No progress bars.")] = None,
    color: Annotated[
        Literal["auto", "always", "never"] | None,
        Option("--color", metavar="auto|always|never", help="When to use colour."),
    ] = None,
    lock_wait: Annotated[
        float | None,
        Option("--lock-wait", metavar="S", min=0, help="Seconds to wait for the store's lock."),
    ] = None,
    jobs: Annotated[
        int | None,
        Option("-j", "--jobs", metavar="N", min=1, help="Threads for reading, hashing and blocks."),
    ] = None,
    yes: Annotated[bool | None, Option("--yes", help="Answer every question with yes.")] = None,
    dry_run: Annotated[
        bool | None, Option("--dry-run", help="Show what would change, change nothing.")
    ] = None,
    device: Annotated[
        str | None,
        Option("--device", metavar="auto|cpu|cuda:N", help="Where to compute (KVG_DEVICE)."),
    ] = None,
) -> None:
    """The global options; every value is None when it was not given."""
