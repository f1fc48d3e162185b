"""``kvg status``."""

from kvg.cli.declare import Context
from kvg.cli.invocation import invocation
from kvg.flow.records import Record


def status(ctx: Context) -> Record:
    """Show the store at a glance.

    Ahead counts refs that a push would move, behind those that a pull would, as of the last push or
    fetch; what was taken off there counts as ahead until a push names it. Refused counts those
    there that the last fetch or pull had to leave out: kvg remote show says why. With -v also where
    it is and what it holds.
    """
    from kvg.flow.status import status as flow

    return flow(invocation(ctx).store)


COMMANDS = {"status": status}
EXAMPLES = {
    "status": """
    $ kvg status
    1 ref; origin up to date; model smol; gates required: none
    """
}
