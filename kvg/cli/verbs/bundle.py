"""``kvg bundle``."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from kvg.cli.declare import Argument, Context, Option
from kvg.cli.invocation import invocation
from kvg.flow.records import Record

File = Annotated[Path, Argument(metavar="FILE", help="The bundle.")]


def create(
    ctx: Context,
    file: File,
    refs: Annotated[
        list[str] | None, Argument(metavar="REF", help="Refs; all of yours if none.")
    ] = None,
    no_pages: Annotated[
        bool, Option("--no-pages", help="Manifests and what is attested only.")
    ] = False,
) -> Record:
    """Write refs and all they need into one file.

    An OCI image layout as a tar: stock tools can look into it. Whoever can read it can read the
    token ids of what is in it.
    """
    from kvg.flow.bundle import bundle_create

    run = invocation(ctx)
    return bundle_create(run.store, run.settings, file, refs or (), pages=not no_pages)


def verify(ctx: Context, file: File) -> Iterable[Record]:
    """Check every byte and signature of a bundle.

    By the keys that this store trusts. Nothing is stored.
    """
    from kvg.flow.bundle import bundle_verify

    run = invocation(ctx)
    return bundle_verify(run.store, run.settings, file)


def list_(ctx: Context, file: File) -> Iterable[Record]:
    """List what a bundle says it holds.

    Refs, and keys on offer with whether they vouch for its log. Needs no store, and proves nothing.
    """
    from kvg.flow.bundle import bundle_list

    return bundle_list(invocation(ctx).settings, file)


def apply(
    ctx: Context,
    file: File,
    refs: Annotated[
        list[str] | None, Argument(metavar="REF", help="Refs in it; all if none.")
    ] = None,
    trust: Annotated[
        list[str] | None,
        Option("--trust", metavar="KEYID", help="Trust this key on offer in it first."),
    ] = None,
) -> Iterable[Record]:
    """Take a bundle in, verified.

    As a pull does: everything is checked before any of it can be seen, refs move forward only.
    """
    from kvg.flow.bundle import bundle_apply

    run = invocation(ctx)
    return bundle_apply(run.store, run.settings, file, refs or (), trust=trust or ())


COMMANDS = {"create": create, "verify": verify, "list": list_, "apply": apply}
EXAMPLES = {
    "create": """
    $ kvg bundle create handbook.tar handbook
    handbook.tar: created, 1 ref, 28 objects, 61.0 MiB
    """,
    "verify": """
    $ kvg bundle verify handbook.tar
    """,
    "list": """
    $ kvg bundle list handbook.tar
    """,
    "apply": """
    $ kvg bundle apply handbook.tar --trust 5d31c0
    """,
}
