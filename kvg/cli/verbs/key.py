"""``kvg key``."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from kvg.cli.declare import Argument, Context, Option
from kvg.cli.invocation import invocation, stdin_bytes
from kvg.errors import UsageError
from kvg.flow.records import Record

if TYPE_CHECKING:
    from kvg.flow.settings import Settings

Name = Annotated[str, Argument(metavar="NAME", help="The key's name, or its key id.")]
NewName = Annotated[str, Argument(metavar="NAME", help="The key's name.")]


def new(
    ctx: Context,
    name: NewName,
    passphrase: Annotated[
        bool, Option("--passphrase", help="Encrypt it with a passphrase.")
    ] = False,
) -> Record:
    """Make a signing key.

    The first key of a store is trusted in that store as depositor and publisher, and says so.
    """
    from kvg.flow.key import new_key

    settings = invocation(ctx).settings
    return new_key(settings, name, new_passphrase(name, settings) if passphrase else None)


def new_passphrase(name: str, settings: "Settings") -> bytes:
    """A passphrase to encrypt a new key with; on a terminal it is typed twice."""
    from kvg.cli.layers import ask_new_passphrase, ask_passphrase

    source = settings.passphrase
    if source is None:
        raise UsageError(
            f"{name}: no passphrase to encrypt it with",
            hint="set KVG_PASSPHRASE_FD, KVG_PASSPHRASE_FILE or KVG_PASSPHRASE_COMMAND",
        )
    return ask_new_passphrase() if source is ask_passphrase else source()


def list_(ctx: Context) -> Iterable[Record]:
    """List your keys."""
    from kvg.flow.key import list_keys

    return list_keys(invocation(ctx).settings)


def show(ctx: Context, name: Name) -> Record:
    """Show one key."""
    from kvg.flow.key import show_key

    return show_key(invocation(ctx).settings, name)


def import_(
    ctx: Context,
    name: NewName,
    file: Annotated[
        Path, Argument(metavar="FILE", help="PKCS#8 or OpenSSH PEM; - is standard input.")
    ],
) -> Record:
    """Take in a private key.

    Ed25519 only. An encrypted key stays encrypted. A file that others can read is refused: whoever
    read it can sign, too.
    """
    from kvg.flow.key import import_key
    from kvg.trust.keyring import read_private

    is_piped = str(file) == "-"
    if is_piped:
        data = stdin_bytes()
    elif file.is_fifo():
        data = read_file(file)
    else:
        data = read_private(file, missing=f"{file}: no such file", hint=None)
    source = "standard input" if is_piped else str(file)
    return import_key(invocation(ctx).settings, name, data, source=source)


def read_file(path: Path) -> bytes:
    """The bytes of a small file."""
    from kvg import durable

    with durable.translated(path), open(path, "rb") as file:
        return file.read(1 << 16)


def export(
    ctx: Context,
    name: Name,
    form: Annotated[
        Literal["openssh", "pem", "note"],
        Option("--form", metavar="openssh|pem|note", help="openssh if left out."),
    ] = "openssh",
) -> Record:
    """Print a public key."""
    from kvg.flow.key import export_key

    return export_key(invocation(ctx).settings, name, form)


def rekey(ctx: Context) -> Record:
    """Replace the key that signs the store's log.

    The change is an entry of the log under a checkpoint that the old key and the new one sign, so
    who knows the old key can follow. Prints the new verifier line.
    """
    from kvg.flow.rekey import rekey as flow

    run = invocation(ctx)
    return flow(run.store, run.settings)


COMMANDS = {
    "new": new,
    "list": list_,
    "show": show,
    "import": import_,
    "export": export,
    "rekey": rekey,
}
EXAMPLES = {
    "new": """
    $ kvg key new work
    $ KVG_PASSPHRASE_FILE=secret kvg key new work --passphrase
    """,
    "list": """
    $ kvg key list
    """,
    "show": """
    $ kvg key show work -v
    """,
    "import": """
    $ kvg key import work ~/.ssh/id_ed25519
    """,
    "export": """
    $ kvg key export work > work.pub
    $ kvg key export work --form pem
    """,
    "rekey": """
    $ kvg key rekey
    """,
}
