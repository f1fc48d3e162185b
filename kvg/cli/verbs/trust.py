"""``kvg trust``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from kvg.cli.invocation import invocation
from kvg.flow.records import Record


def add(
    ctx: typer.Context,
    key: Annotated[
        str,
        typer.Argument(metavar="KEY", help="A file with a public key, its text, or your own key."),
    ],
    role: Annotated[
        list[str] | None,
        typer.Option(
            "--role", metavar="R", help="depositor, verifier or publisher; may be repeated."
        ),
    ] = None,
    sign_with: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="K", help="A publisher's key that signs the change."),
    ] = None,
) -> Record:
    """Trust a key in this store.

    Without a role as depositor and publisher. A trusted publisher's key signs the change.
    """
    from kvg.flow.trust import trust_add

    run = invocation(ctx)
    return trust_add(run.store, run.settings, key, role or (), sign_with or ())


def list_(ctx: typer.Context) -> Iterable[Record]:
    """List the trusted keys."""
    from kvg.flow.trust import trust_list

    run = invocation(ctx)
    return trust_list(run.store, run.settings)


COMMANDS = {"add": add, "list": list_}
EXAMPLES = {
    "add": """
    $ kvg trust add colleague.pub
    $ kvg trust add auditor.pub --role verifier
    """,
    "list": """
    $ kvg trust list -v
    """,
}
