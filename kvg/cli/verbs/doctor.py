"""``kvg doctor``."""

from collections.abc import Iterable
from typing import Annotated, Literal

from kvg.cli.declare import Context, Option
from kvg.cli.invocation import invocation
from kvg.errors import NotFound
from kvg.flow.records import Record
from kvg.flow.requests import DoctorRequest


def doctor(
    ctx: Context,
    require: Annotated[
        Literal["exact"] | None,
        Option("--require", metavar="exact", help="Fail unless grafts are exact here."),
    ] = None,
    model: Annotated[
        str | None, Option("--model", metavar="M", help="The model to check with.")
    ] = None,
) -> Iterable[Record]:
    """Look at this machine and say what it can do.

    With a registered model the self-check runs on the model's own shapes.
    """
    from kvg.flow.doctor import doctor as flow

    run = invocation(ctx)
    try:
        store = run.store
    except NotFound:
        store = None
    return flow(store, run.settings, DoctorRequest(require == "exact", model))


COMMANDS = {"doctor": doctor}
EXAMPLES = {
    "doctor": """
    $ kvg doctor
    $ kvg doctor --require exact --device cuda:0
    """
}
