"""``kvg help``."""

from typing import Annotated

from kvg.cli.declare import Argument, Context
from kvg.cli.table import BY_NAME
from kvg.flow.records import HelpText


def help_(
    ctx: Context,
    words: Annotated[
        list[str] | None,
        Argument(metavar="VERB|TOPIC", help="A verb, exit-codes or environment."),
    ] = None,
) -> HelpText:
    """Show the help of a verb or a topic.

    The topics are exit-codes and environment.
    """
    from kvg.cli.group import SubverbGroup, build_root
    from kvg.cli.help import group_page, page_of, root_page, text_of, topic_text

    names = words or []
    if not names:
        return HelpText(text_of(root_page()))
    if len(names) == 1 and names[0] not in BY_NAME:
        return HelpText(topic_text(names[0]))
    found = build_root().named(names[0])
    if isinstance(found, SubverbGroup):
        if len(names) == 1:
            return HelpText(text_of(group_page(found.verb)))
        found = found.named(names[1])
    return HelpText(text_of(page_of(found)))


COMMANDS = {"help": help_}
EXAMPLES = {
    "help": """
    $ kvg help deposit
    $ kvg help key new
    $ kvg help exit-codes
    """
}
