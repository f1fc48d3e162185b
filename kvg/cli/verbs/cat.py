"""``kvg cat``."""

from typing import Annotated

from kvg.cli.declare import Argument, Context
from kvg.cli.invocation import invocation
from kvg.cli.render import Raw
from kvg.errors import UsageError
from kvg.flow.records import Record


def cat(
    ctx: Context,
    target: Annotated[str, Argument(metavar="OBJECT", help="A digest, or a ref for its manifest.")],
) -> Raw | Record:
    """Write an object's bytes, verified, to stdout.

    The raw bytes, whatever form they are stored in; sha256sum gives the object's digest. Binary
    ones are not written to a terminal. With --json they come in base64.
    """
    from kvg.flow.cat import cat as flow

    run = invocation(ctx)
    digest, data = flow(run.store, target)
    if run.given.json:
        from base64 import b64encode

        from kvg.flow.records import ObjectBytes

        return ObjectBytes(digest, data.nbytes, b64encode(data).decode("ascii"))
    if run.terminal.out_tty and not is_text(bytes(data[:65_536])):
        raise UsageError(f"{target}: binary, not for a terminal", hint=f"kvg cat {target} > FILE")
    return Raw(data)


def is_text(data: bytes) -> bool:
    """Whether ``data`` begins as UTF-8 text without control characters."""
    text = data.decode("utf-8", "ignore")
    whole = len(text.encode("utf-8")) >= len(data) - 3
    return whole and all(c.isprintable() or c in "\t\r\n" for c in text)


COMMANDS = {"cat": cat}
EXAMPLES = {
    "cat": """
    $ kvg cat handbook | jq .tokens
    $ kvg cat sha256:4c1d09 > page.safetensors
    """
}
