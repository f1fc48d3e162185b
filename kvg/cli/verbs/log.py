"""``kvg log``."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from kvg.cli.declare import Argument, Context, Option
from kvg.cli.invocation import invocation, read_at_most, stdin_bytes
from kvg.cli.values import parse_moment
from kvg.errors import UsageError
from kvg.flow.records import Record

if TYPE_CHECKING:
    from kvg.cli.invocation import Invocation

MAX_BYTES = 64 << 20


def log(
    ctx: Context,
    ref: Annotated[str | None, Argument(metavar="REF", help="Only what concerns this ref.")] = None,
    since: Annotated[
        str | None, Option("--since", metavar="T", help="Not before: a date, 2d, 3h.")
    ] = None,
    receipt: Annotated[
        bool, Option("--receipt", help="With the proof of each entry's place.")
    ] = False,
    check: Annotated[
        Path | None,
        Option("--check", metavar="FILE", help="Check the receipts in a file; no store."),
    ] = None,
    verifier: Annotated[
        str | None,
        Option("--verifier", metavar="V", help="The log's key for --check; this store's."),
    ] = None,
    checkpoint: Annotated[
        bool, Option("--checkpoint", help="Print the signed checkpoint and its witnesses.")
    ] = False,
    cosigned: Annotated[
        Path | None,
        Option("--cosigned", metavar="FILE", help="Take up witnesses' cosignatures."),
    ] = None,
    witness: Annotated[
        list[str] | None,
        Option("--witness", metavar="V", help="A witness to trust from now on."),
    ] = None,
) -> Iterable[Record] | Record:
    """Show what happened, newest first.

    Each line is an entry of the store's signed log, whose order can be proved; times are what the
    writer said. A receipt proves an entry's place to whoever has the log's key and nothing else.
    A witness (C2SP tlog-cosignature) vouches that the log was not shown in two forms; the time it
    gives is its own word. --witness alone trusts one and shows the checkpoint.
    """
    _refuse_idle(
        ("--verifier", verifier is not None and check is None, "it is for --check"),
        ("--witness", bool(witness) and check is not None, "--check reads no witness's word"),
    )
    if check is not None:
        from kvg.flow.receipt import check_receipts

        return check_receipts(_read(check), verifier, lambda: invocation(ctx).store.log)
    if checkpoint or cosigned is not None or witness:
        return _checkpoint(invocation(ctx), cosigned, witness or ())
    from kvg.flow.log import log as flow

    moment = None if since is None else parse_moment(since, option="--since", ahead=False)
    return flow(invocation(ctx).store, ref, since=moment, receipt=receipt)


def _refuse_idle(*options: tuple[str, bool, str]) -> None:
    """An option that would change nothing is a mistake."""
    for name, is_idle, why in options:
        if is_idle:
            raise UsageError(f"{name}: {why}", hint="kvg help log")


def _checkpoint(run: "Invocation", cosigned: Path | None, witnesses: Sequence[str]) -> Record:
    from kvg.flow.checkpoint import add_cosignatures, checkpoint, trust_witnesses

    if cosigned is None and witnesses:
        return trust_witnesses(run.store, run.settings, witnesses)
    if cosigned is None:
        return checkpoint(run.store)
    return add_cosignatures(run.store, run.settings, _read(cosigned), witnesses)


def _read(path: Path) -> bytes:
    """The bytes of a small file; ``-`` is standard input."""
    from kvg import durable

    if str(path) == "-":
        return stdin_bytes(MAX_BYTES)
    with durable.translated(path), open(path, "rb") as file:
        return read_at_most(file, MAX_BYTES, what=str(path))


COMMANDS = {"log": log}
EXAMPLES = {
    "log": """
    $ kvg log
    $ kvg log handbook --since 7d
    $ kvg log handbook --receipt > proof
    $ kvg log --check proof --verifier kvg-8f1c+5a0c1d2e+AYx…
    $ kvg log --checkpoint > checkpoint
    $ kvg log --cosigned answer --witness witness.example+3f9a…
    """
}
