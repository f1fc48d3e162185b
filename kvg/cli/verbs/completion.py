"""``kvg completion``."""

from typing import Annotated, Literal

from kvg.cli.declare import Argument, Context
from kvg.cli.invocation import Invocation, invocation
from kvg.cli.render import Raw
from kvg.flow.records.program import HelpText


def completion(
    ctx: Context,
    shell: Annotated[
        Literal["bash", "zsh", "fish"], Argument(metavar="bash|zsh|fish", help="The shell.")
    ],
) -> Raw | HelpText:
    """Print a shell's completion script."""
    from kvg.cli.completion import SCRIPTS

    if invocation(ctx).given.json:
        return HelpText(SCRIPTS[shell])
    return Raw(SCRIPTS[shell].encode("utf-8"))


def complete(
    ctx: Context,
    words: Annotated[list[str] | None, Argument(metavar="WORD", help="The words so far.")] = None,
) -> Raw:
    """Print what can come next."""
    from kvg.cli.completion import candidates

    found = candidates(words or [], known_refs(invocation(ctx)))
    return Raw("".join(f"{text}\n" for text in found).encode("utf-8"))


def known_refs(run: Invocation) -> list[str]:
    """The refs of the store here; none when there is no store that can be read."""
    from kvg.errors import KvgError

    try:
        return sorted(run.store.refs())
    except KvgError:
        return []


COMMANDS = {"completion": completion, "__complete": complete}
EXAMPLES = {
    "completion": """
    $ kvg completion bash > ~/.local/share/bash-completion/completions/kvg
    $ kvg completion zsh > "${fpath[1]}/_kvg"
    $ kvg completion fish > ~/.config/fish/completions/kvg.fish
    """,
    "__complete": "",
}
