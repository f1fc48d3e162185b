"""``kvg config``."""

from collections.abc import Iterable
from typing import Annotated

from kvg.cli.declare import Argument, Context, Option
from kvg.cli.invocation import Invocation, invocation
from kvg.cli.layers import Layers
from kvg.cli.render import Raw
from kvg.errors import NotFound
from kvg.flow.records import ConfigEntry, Record

LOCK_WAIT_S = 10.0
User = Annotated[bool, Option("--user", help="In the user's configuration, not the store's.")]
Key = Annotated[str, Argument(metavar="KEY", help="SECTION.KEY, e.g. store.codec.")]


def get(ctx: Context, key: Key) -> Record | Raw:
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
    ctx: Context,
    key: Key,
    value: Annotated[str, Argument(metavar="VALUE", help="The value.")],
    user: User = False,
) -> Record:
    """Write a setting.

    deposit.require takes formal, test, consistency, seeds (all of these), the name of a gate such
    as test:pytest, a|b for one of two, and a list such as '["test", "consistency"]'.
    """
    from kvg.cli.edits import set_option

    run = _editing(ctx)
    return set_option(None if user else run.store, run.settings, key, value)


def unset(ctx: Context, key: Key, user: User = False) -> Record:
    """Take a setting out.

    What the next layer says of it, or the default, is in force then. Exit code 3 where it is not
    set.
    """
    from kvg.cli.edits import unset_option

    run = _editing(ctx)
    return unset_option(None if user else run.store, run.settings, key)


def _editing(ctx: Context) -> Invocation:
    """This run, with nothing of it read that a wrong value would bar from its own repair."""
    run = invocation(ctx)
    run.given.jobs = run.given.jobs or 1
    run.given.device = run.given.device or "auto"
    if run.given.lock_wait is None:
        run.given.lock_wait = LOCK_WAIT_S
    return run


def list_(
    ctx: Context,
    show_origin: Annotated[
        bool, Option("--show-origin", help="With the layer and the file of each.")
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


COMMANDS = {"get": get, "set": set_, "unset": unset, "list": list_}
EXAMPLES = {
    "get": """
    $ kvg config get core.device
    auto
    """,
    "set": """
    $ kvg config set store.codec 2
    $ kvg config set core.device cuda:0 --user
    """,
    "unset": """
    $ kvg config unset deposit.require
    """,
    "list": """
    $ kvg config list --show-origin
    """,
}
