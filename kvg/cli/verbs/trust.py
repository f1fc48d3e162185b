"""``kvg trust``."""

from collections.abc import Iterable
from typing import Annotated

from kvg.cli.declare import Argument, Context, Option
from kvg.cli.invocation import invocation
from kvg.flow.records import Record

Signers = Annotated[
    list[str] | None,
    Option("--key", metavar="K", help="A publisher's key that signs the change; may be repeated."),
]
Trusted = Annotated[
    str, Argument(metavar="KEY", help="A trusted key: its id, its file, or your own's name.")
]


def add(
    ctx: Context,
    key: Annotated[
        str,
        Argument(metavar="KEY", help="A file with a public key, its text, or your own key."),
    ],
    role: Annotated[
        list[str] | None,
        Option("--role", metavar="R", help="depositor, verifier or publisher; may be repeated."),
    ] = None,
    sign_with: Signers = None,
) -> Record:
    """Trust a key in this store.

    Without a role as depositor and publisher. A trusted publisher's key signs the change.
    """
    from kvg.flow.trust import trust_add

    run = invocation(ctx)
    return trust_add(run.store, run.settings, key, role or (), sign_with or ())


def list_(ctx: Context) -> Iterable[Record]:
    """List the trusted keys."""
    from kvg.flow.trust import trust_list

    run = invocation(ctx)
    return trust_list(run.store, run.settings)


def remove(
    ctx: Context,
    key: Trusted,
    role: Annotated[
        list[str] | None,
        Option("--role", metavar="R", help="Only this role; may be repeated."),
    ] = None,
    sign_with: Signers = None,
) -> Record:
    """Trust a key no longer, or not for a role.

    What it signed counts no more, whenever it was signed; kvg trust revoke keeps the past. As many
    publishers sign as were needed before, and as are needed after.
    """
    from kvg.flow.trust import trust_remove

    run = invocation(ctx)
    return trust_remove(run.store, run.settings, key, role or (), sign_with or ())


def revoke(
    ctx: Context,
    key: Trusted,
    origin: Annotated[
        str | None,
        Option("--origin", metavar="LOG", help="The log that says when; this store's."),
    ] = None,
    size: Annotated[
        int | None,
        Option(
            "--size", metavar="N", min=0, help="Entries of that log that still count; all so far."
        ),
    ] = None,
    sign_with: Signers = None,
) -> Record:
    """Let a key count only for what a log already holds.

    Positions in a log decide, not clocks: what that log had included before N entries still
    counts, and nothing after. With --origin, the log of who published it: as far as you have
    fetched that log yourself. Another publisher's key signs, and it is never taken back.
    """
    from kvg.flow.trust import trust_revoke

    run = invocation(ctx)
    signers = sign_with or ()
    return trust_revoke(run.store, run.settings, key, signers, origin=origin, size=size)


def threshold(
    ctx: Context,
    wanted: Annotated[
        list[str] | None, Argument(metavar="ROLE=N", help="None: show what is needed now.")
    ] = None,
    sign_with: Signers = None,
) -> Iterable[Record]:
    """Show or set how many distinct keys a role needs.

    verifier=2 asks of every graft that two trusted verifiers replayed the artifact and found every
    page equal. publisher=2 asks for two signatures on every later change of trust.
    """
    from kvg.flow.trust import trust_threshold

    run = invocation(ctx)
    return trust_threshold(run.store, run.settings, wanted or (), sign_with or ())


COMMANDS = {
    "add": add,
    "list": list_,
    "remove": remove,
    "revoke": revoke,
    "threshold": threshold,
}
EXAMPLES = {
    "add": """
    $ kvg trust add colleague.pub
    $ kvg trust add auditor.pub --role verifier
    """,
    "list": """
    $ kvg trust list -v
    """,
    "remove": """
    $ kvg trust remove 5d31c0
    $ kvg trust remove auditor.pub --role verifier
    """,
    "revoke": """
    $ kvg trust revoke 5d31c0 --key spare
    $ kvg trust revoke 5d31c0 --size 1204 --key spare
    """,
    "threshold": """
    $ kvg trust threshold
    $ kvg trust threshold verifier=2
    $ kvg trust threshold publisher=2 --key work --key spare
    """,
}
