"""``kvg config``."""

from collections.abc import Iterable
from typing import Annotated

import typer

from kvg.cli.invocation import Invocation, invocation
from kvg.cli.layers import Layers
from kvg.cli.render import Raw
from kvg.errors import NotFound
from kvg.flow.records import ConfigEntry, Record

LOCK_WAIT_S = 10.0
Key = Annotated[str, typer.Argument(metavar="KEY", help="SECTION.KEY, e.g. store.codec.")]


def get(ctx: typer.Context, key: Key) -> Record | Raw:
    """Print the value of a setting.

    The one in force: flag, then environment, then store, then user configuration.
    """
    from kvg.cli.render.program import shown

    run = invocation(ctx)
    found = _layers(run).find(key)
    if found is None:
        raise NotFound(f"{key}: not set", hint="kvg config list")
    if run.given.json:
        return ConfigEntry(key, found.value, found.origin, found.source)
    return Raw(shown(found.value).encode("utf-8") + b"\n")


def set_(
    ctx: typer.Context,
    key: Key,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="The value.")],
    user: Annotated[
        bool, typer.Option("--user", help="In the user's configuration, not the store's.")
    ] = False,
) -> Record:
    """Write a setting."""
    from kvg.cli.layers import set_option

    run = invocation(ctx)
    run.given.jobs = run.given.jobs or 1  # a value that is wrong must not bar its own repair
    run.given.device = run.given.device or "auto"
    if run.given.lock_wait is None:
        run.given.lock_wait = LOCK_WAIT_S
    return set_option(None if user else run.store, run.settings, key, value)


def list_(
    ctx: typer.Context,
    show_origin: Annotated[
        bool, typer.Option("--show-origin", help="With the layer and the file of each.")
    ] = False,
) -> Iterable[Record]:
    """List the settings."""
    from dataclasses import replace

    entries = _layers(invocation(ctx)).entries()
    return (
        entries if show_origin else (replace(entry, origin=None, source=None) for entry in entries)
    )


def _layers(run: Invocation) -> Layers:
    import os

    return Layers(run.given, os.environ)


COMMANDS = {"get": get, "set": set_, "list": list_}
EXAMPLES = {
    "get": """
    $ kvg config get core.device
    auto
    """,
    "set": """
    $ kvg config set store.codec 2
    $ kvg config set core.device cuda:0 --user
    """,
    "list": """
    $ kvg config list --show-origin
    """,
}
