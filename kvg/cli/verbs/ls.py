"""``kvg ls``."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Annotated

from kvg.cli.declare import Context, Option
from kvg.cli.invocation import invocation
from kvg.cli.render import Raw
from kvg.errors import UsageError
from kvg.flow.records import Record
from kvg.flow.settings import check_text

if TYPE_CHECKING:
    from kvg.cli.invocation import Invocation
    from kvg.flow.records import RefEntry

_FIELD = r"\{([a-z_]+)\}"


def ls(
    ctx: Context,
    form: Annotated[
        str | None,
        Option("--format", metavar="F", help="A line for each ref, e.g. '{ref} {digest}'."),
    ] = None,
    nul: Annotated[
        bool, Option("-0", help="End each name, or line of --format, with NUL.")
    ] = False,
    stale: Annotated[
        bool,
        Option("--stale", help="Only those past their validity or outdated, and such methods."),
    ] = False,
    graftable: Annotated[
        bool,
        Option("--graftable", help="Only those that this machine can graft."),
    ] = False,
    everything: Annotated[
        bool, Option("-a", "--all", help="Also REMOTE/REF: what remotes had when last seen.")
    ] = False,
) -> Iterable[Record] | Iterator[Raw]:
    """List the refs.

    With --stale also methods that answer no more; these have no ref, so --format and -0 leave them
    out. Fields of --format are those of the JSON record: ref, digest, tokens, pages, model,
    architecture, reference, gates, pinned, previous, stale.
    """
    from kvg.flow.ls import ls as flow

    run = invocation(ctx)
    entries = flow(run.store, run.settings, stale=stale, graftable=graftable, everything=everything)
    if form is None and not nul:
        return chain(entries, stale_methods(run)) if stale and not graftable else entries
    if run.given.json:
        raise UsageError("--json: has a form of its own", hint="leave out --format and -0")
    return formatted(entries, form or "{ref}", b"\0" if nul else b"\n")


def stale_methods(run: "Invocation") -> "Iterator[Record]":
    """The methods that are stale, once the refs were listed."""
    from kvg.flow.method import stale_methods as flow

    yield from flow(run.store, run.settings.cwd)


def formatted(entries: "Iterable[RefEntry]", form: str, end: bytes) -> Iterator[Raw]:
    """One line for each entry."""

    check_text(form, what="--format")
    if re.search(r"[{}]", re.sub(_FIELD, "", form, flags=re.ASCII)):
        raise UsageError(f"--format {form}: a brace that is no field", hint="kvg ls --help")
    for entry in entries:
        line = "".join(_pieces(entry, form))
        yield Raw(line.encode("utf-8") + end)


def _pieces(entry: "RefEntry", form: str) -> Iterator[str]:
    """``form`` cut at its fields, each replaced by its value."""
    for number, piece in enumerate(re.split(_FIELD, form, flags=re.ASCII)):
        yield _value(entry, piece) if number % 2 else piece


def _value(entry: "RefEntry", name: str) -> str:
    if name not in entry.__dataclass_fields__:
        raise UsageError(f"--format: no field {name}", hint="kvg ls --help")
    value = getattr(entry, name)
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


COMMANDS = {"ls": ls}
EXAMPLES = {
    "ls": """
    $ kvg ls
    $ kvg ls --all
    $ kvg ls --stale
    $ kvg ls --format '{ref} {digest} {tokens}'
    $ kvg ls -0 --graftable | xargs -0 -n1 kvg verify
    """
}
