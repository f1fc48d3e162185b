"""``kvg remote``."""

from collections.abc import Iterable
from typing import Annotated

from kvg.cli.declare import Argument, Context, Option
from kvg.cli.invocation import invocation
from kvg.flow.records import Record

Name = Annotated[str, Argument(metavar="NAME", help="The remote's name here.")]
Url = Annotated[
    str, Argument(metavar="URL", help="A folder, or ssh://, s3://, oci:// or https://.")
]


def add(ctx: Context, name: Name, url: Url) -> Record:
    """Give a remote a name.

    The one named origin is used where none is named. Nothing is looked at yet; the first push makes
    the place a remote. A URL is a folder, ssh://HOST/PATH (kvg has to be there, too),
    s3://BUCKET/PREFIX, oci://HOST/REPOSITORY, or https://HOST/PATH, which can only be read. Logins
    are those of other tools: OpenSSH's own (KVG_SSH_COMMAND names another command), AWS_* or
    ~/.aws, docker's. Only https:// (and http:// on this very machine) takes a NAME:PASSWORD@ before
    its host: the store's config.toml keeps it, from then on readable by its owner alone, and it is
    never shown. Proxies are those of http_proxy, https_proxy, all_proxy and no_proxy.
    """
    from kvg.flow.remote import remote_add

    run = invocation(ctx)
    return remote_add(run.store, run.settings, name, url)


def list_(ctx: Context) -> Iterable[Record]:
    """List the remotes."""
    from kvg.flow.remote import remote_list

    return remote_list(invocation(ctx).store)


def set_(
    ctx: Context,
    name: Name,
    url: Annotated[str | None, Argument(metavar="URL", help="The new address.")] = None,
    codec: Annotated[
        int | None,
        Option(
            "--codec",
            metavar="0|1|2",
            help="How objects are stored there: 2, the default, takes a third less room; 0 is raw, "
            "as quick as a copy.",
        ),
    ] = None,
    pages: Annotated[
        bool | None,
        Option("--pages/--no-pages", help="Bring pages with a pull, or when they are read."),
    ] = None,
    pattern: Annotated[
        str | None,
        Option("--filter", metavar="PATTERN", help="Fetch only refs that match; '' for all."),
    ] = None,
) -> Record:
    """Change a remote.

    With another address, what was last seen there, NAME/REF, is forgotten until a fetch or a push.
    """
    from kvg.flow.remote import remote_set

    run = invocation(ctx)
    return remote_set(
        run.store, run.settings, name, url=url, codec=codec, pages=pages, pattern=pattern
    )


def remove(ctx: Context, name: Name) -> Record:
    """Forget a remote.

    Its refs here go too; what lies there stays as it is. One that keeps pages until they are read
    here, and that no other keeps, is forgotten with --yes only.
    """
    from kvg.flow.remote import remote_remove

    run = invocation(ctx)
    return remote_remove(run.store, run.settings, name)


def show(
    ctx: Context,
    name: Annotated[
        str | None, Argument(metavar="NAME", help="Its name here; origin if left out.")
    ] = None,
) -> Iterable[Record]:
    """Show what a remote has and whose it is.

    Keys that lie there are offers; trust one with kvg trust add once its owner has told you its id.
    A ref that can't be proved is shown with what is wrong, which decides the exit code.
    """
    from kvg.flow.remote import remote_show

    run = invocation(ctx)
    return remote_show(run.store, run.settings, name)


def gc(
    ctx: Context,
    name: Annotated[
        str | None, Argument(metavar="NAME", help="Its name here; origin if left out.")
    ] = None,
) -> Iterable[Record]:
    """Remove from a remote what no ref there needs.

    What refs stood for before goes, too, and what pushes that were killed had half written. Every
    log and ref there is proved first; where one can't be, nothing is removed. While somebody pushes
    there it is refused, and the other way round; a push or a removal that was killed is told by
    watching its mark there, which takes three minutes.

    In S3 the parts of an upload that was killed are seen by no listing of objects, and stay until a
    life-cycle rule of the bucket removes them: AbortIncompleteMultipartUpload.
    """
    from kvg.flow.remote_gc import remote_gc

    run = invocation(ctx)
    return remote_gc(run.store, run.settings, name)


COMMANDS = {"add": add, "list": list_, "set": set_, "remove": remove, "show": show, "gc": gc}
EXAMPLES = {
    "add": """
    $ kvg remote add origin /mnt/share
    $ kvg remote add mirror https://kv.example.org/team
    $ kvg remote add lab ssh://kv@lab.example.org/srv/kv
    $ kvg remote add cloud s3://our-bucket/kv
    $ kvg remote add hub oci://registry.example.org/team/kv
    """,
    "list": """
    $ kvg remote list
    origin  /mnt/share
    """,
    "set": """
    $ kvg remote set origin /mnt/other
    $ kvg remote set origin --codec 0
    $ kvg remote set origin --filter 'docs/*'
    """,
    "remove": """
    $ kvg remote remove mirror
    """,
    "gc": """
    $ kvg remote gc --dry-run
    $ kvg remote gc origin
    origin: removed 28 objects, 74.3 MiB; 112 kept
    """,
    "show": """
    $ kvg remote show origin
    """,
}
