"""The options of the verbs that a resident session can compute."""

from __future__ import annotations

from typing import Annotated

from kvg.cli.declare import Option
from kvg.errors import UsageError

SessionName = Annotated[
    str | None,
    Option("--session", metavar="S", help="Compute in this resident session: kvg session."),
]
SlotNumber = Annotated[
    int | None,
    Option("--slot", metavar="I", min=0, help="The session's slot to use, and to leave it in."),
]
At = Annotated[
    int | None,
    Option(
        "--at",
        metavar="POS",
        min=0,
        help="The position expected: the artifact's own, or with --slot where the slot goes on.",
    ),
]


def check_seat(session: str | None, slot: int | None) -> None:
    """Raise ``UsageError`` for a slot without a session."""
    if slot is not None and session is None:
        raise UsageError(f"--slot {slot}: of which session?", hint="give --session S")
