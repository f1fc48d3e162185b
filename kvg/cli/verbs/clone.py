"""``kvg clone``."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from kvg.cli.declare import Argument, Context, Option
from kvg.cli.invocation import invocation
from kvg.flow.records import Record


def clone(
    ctx: Context,
    url: Annotated[
        str, Argument(metavar="URL", help="A folder, or ssh://, s3://, oci:// or https://.")
    ],
    folder: Annotated[
        Path | None, Argument(metavar="DIR", help="Where; the last part of URL if left out.")
    ] = None,
    pattern: Annotated[
        str | None,
        Option("--filter", metavar="PATTERN", help="Only refs that match, docs/*."),
    ] = None,
    no_pages: Annotated[
        bool,
        Option("--no-pages", help="Bring pages only when they are read, as by a graft."),
    ] = False,
    trust: Annotated[
        list[str] | None,
        Option("--trust", metavar="KEYID", help="The publisher's key, as its owner says it."),
    ] = None,
) -> Iterable[Record]:
    """Make a store from a remote.

    Shows the publisher's key and asks whether to trust it; where nobody can be asked, --trust says
    so. A key that lies on the remote is an offer: compare its id with what its owner tells you.

    --filter holds for later fetches and pulls, too, where they name no ref; kvg remote set origin
    --filter PATTERN changes it.
    """
    from kvg.flow.clone import clone as flow

    run = invocation(ctx)
    ask = run.ask if run.terminal.prompts else None
    return flow(
        run.settings,
        url,
        folder,
        pattern=pattern,
        pages=not no_pages,
        trust=trust or (),
        ask=ask,
    )


COMMANDS = {"clone": clone}
EXAMPLES = {
    "clone": """
    $ kvg clone /mnt/share ../peer --trust 5d31c0
    handbook  sha256:9f2ab1…  signed by 5d31c0, trusted
    $ kvg clone https://kv.example.org/team --filter 'docs/*'
    $ kvg clone s3://our-bucket/kv audit --no-pages --trust 5d31c0
    """
}
