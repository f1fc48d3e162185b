"""``kvg session``, and the process that it starts."""

import os
import sys
from collections.abc import Iterable
from typing import Annotated, Literal

from kvg.cli.declare import Argument, Context, Option
from kvg.cli.invocation import Invocation, invocation
from kvg.errors import KvgError
from kvg.flow.records import Record

Name = Annotated[str, Argument(metavar="NAME", help="The session's name.")]
Model = Annotated[str | None, Option("--model", metavar="M", help="A registered model.")]
Reference = Annotated[
    Literal["invariant", "scheduled"],
    Option("--reference", metavar="invariant|scheduled", help="The definition of fresh."),
]
Slots = Annotated[int, Option("--slots", metavar="N", min=1, help="Numbered slots; 8.", max=4096)]
Keep = Annotated[
    int,
    Option("--keep", metavar="N", min=1, help="Restored artifacts that stay in memory; 8."),
]
Parallel = Annotated[
    int,
    Option("--parallel", metavar="N", min=1, max=256, help="Requests under way at a time; 8."),
]
Idle = Annotated[
    str,
    Option("--idle", metavar="T", help="End after so long without a request; 30m. 0: never."),
]
Memory = Annotated[
    str | None,
    Option(
        "--memory", metavar="SIZE", help="Most memory for model and slots; 3/4 of the machine's."
    ),
]
Tcp = Annotated[
    int | None,
    Option(
        "--tcp",
        metavar="PORT",
        min=0,
        max=65535,
        help="Serve the OpenAI API on loopback too, with a token; 0 takes a free port.",
    ),
]


def start(
    ctx: Context,
    name: Name,
    model: Model = None,
    reference: Reference = "invariant",
    slots: Slots = 8,
    keep: Keep = 8,
    parallel: Parallel = 8,
    idle: Idle = "30m",
    memory: Memory = None,
    tcp: Tcp = None,
    foreground: Annotated[
        bool, Option("--foreground", help="Stay in this process; log to standard error.")
    ] = False,
) -> Record:
    """Start a session: a process that keeps a model loaded.

    It listens on a private socket under the runtime folder (XDG_RUNTIME_DIR, else /tmp/kvg-UID),
    for processes of this user alone, and ends by itself when nobody asks for a while. It also
    speaks the OpenAI API there (completions and chat, streamed too); the extra field kvg_ref names
    the ref to graft. With --tcp it does so on loopback, for who sends the token.
    """
    from kvg.flow.session import check_served, start_session

    run = invocation(ctx)
    words = [*_program(run), name]
    options = {"--model": model, "--reference": reference, "--slots": slots, "--keep": keep}
    options |= {"--parallel": parallel, "--idle": idle, "--memory": memory, "--tcp": tcp}
    for option, value in options.items():
        words += [] if value is None else [option, str(value)]
    _check(idle, memory)
    if foreground:
        check_served()
        sys.stdout.flush()
        os.execv(words[0], words)
    return start_session(run.session_homes, name, words)


def list_(ctx: Context) -> Iterable[Record]:
    """List the sessions of this user.

    What each is doing is told by itself; one that was killed is said to be dead.
    """
    from kvg.flow.session import list_sessions

    return list_sessions(invocation(ctx).session_homes)


def stop(ctx: Context, name: Name) -> Record:
    """End a session.

    What it is computing ends before its next forward pass; whoever asked for it is told so. What a
    killed one left behind is removed.
    """
    from kvg.flow.session import stop_session

    return stop_session(invocation(ctx).session_homes, name)


def slots(
    ctx: Context,
    name: Name,
    clear: Annotated[
        int | None, Option("--clear", metavar="I", min=0, help="Empty this slot first.")
    ] = None,
) -> Iterable[Record]:
    """Show what the numbered slots of a session hold.

    The position is where the next token goes: what --at must say to go on there.
    """
    from kvg.flow.session import session_slots

    return session_slots(invocation(ctx).session_homes, name, clear)


def serve(
    ctx: Context,
    name: Name,
    model: Model = None,
    reference: Reference = "invariant",
    slots: Slots = 8,
    keep: Keep = 8,
    parallel: Parallel = 8,
    idle: Idle = "30m",
    memory: Memory = None,
    tcp: Tcp = None,
    ready_fd: Annotated[
        int | None, Option("--ready-fd", metavar="N", help="Tell here when it listens.")
    ] = None,
) -> None:
    """Be a session."""
    from kvg.client.channel import error_line
    from kvg.client.place import Place, check_name
    from kvg.serve import daemon

    run = invocation(ctx)
    daemon.start_log()
    check_name(name)
    idle_s, memory_bytes = _check(idle, memory)
    try:
        request = daemon.ServeRequest(
            place=Place(name, run.session_homes.folder),
            model=model,
            reference=reference,
            n_slots=slots,
            n_kept=keep,
            parallel=parallel,
            idle_s=idle_s,
            memory_bytes=memory_bytes,
            tcp=tcp,
            ready_fd=ready_fd,
        )
        daemon.serve(run.settings, request)
    except KvgError as error:
        if ready_fd is not None:
            daemon.tell(ready_fd, error_line(error))
        raise


def _check(idle: str, memory: str | None) -> tuple[float, int | None]:
    """Seconds and bytes that the options mean. Raises ``UsageError``."""
    from kvg.cli.values import parse_size, parse_span

    return parse_span(idle, option="--idle"), None if memory is None else parse_size(memory)


def _program(run: Invocation) -> list[str]:
    """What runs this program again, in the same store and with the same settings."""
    words = [sys.executable, "-P", "-m", "kvg", "--store", str(run.root), "--no-progress"]
    given = run.given
    if given.device is not None:
        words += ["--device", given.device]
    if given.jobs is not None:
        words += ["--jobs", str(given.jobs)]
    if given.lock_wait is not None:
        words += ["--lock-wait", str(given.lock_wait)]
    if given.debug:
        words += ["--debug"]
    return [*words, "__session"]


COMMANDS = {"start": start, "list": list_, "stop": stop, "slots": slots, "__session": serve}
EXAMPLES = {
    "start": """
    $ kvg session start desk --model smol
    desk  running  smol invariant cpu  8 slots free
    $ kvg graft handbook --session desk --prompt "In short: "
    $ kvg session start open --tcp 0 --idle 8h --memory 4GB
    """,
    "list": """
    $ kvg session list
    $ kvg session list --json | jq -r .socket
    """,
    "stop": """
    $ kvg session stop desk
    """,
    "slots": """
    $ kvg ask handbook "What does with do?" --session desk --slot 0
    $ kvg session slots desk
    $ kvg deposit talk --session desk --slot 0
    """,
    "__session": "",
}
