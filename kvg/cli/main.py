"""The entry point: the one place with try/except, exit codes and the form of errors.

A verb returns a record, an iterator of records, ``Raw`` bytes or None. Everything that goes wrong
arrives here as an exception and leaves as a message on standard error and an exit code.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NoReturn

from kvg.errors import Bug, Incompatible, Interrupted, KvgError, NoSpace, NotFound, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvg.cli.invocation import Globals


MODEL_EXTRA = ("torch", "transformers", "tokenizers", "numpy", "accelerate", "gguf")
"""Top-level modules that come with an extra of the distribution."""

_NO_MEMORY = ("failed to map segment", "annot allocate memory", "can't allocate memory")


def run() -> NoReturn:
    """``kvg`` as a program.

    It leaves without taking the interpreter apart, which costs more than a short command does:
    output is flushed and what is durable is so already; memory goes back to the system anyway. The
    collector seldom runs, for the same reason. Compute threads sleep while they wait, unless the
    environment says otherwise: where other programs want the cores too, spinning costs several
    times the work itself.
    """
    import gc

    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    _open_closed_streams()
    gc.set_threshold(100_000, 20, 20)
    code = main(sys.argv[1:])
    try:
        sys.stderr.flush()
    except (OSError, ValueError):
        pass
    os._exit(code)


def _open_closed_streams() -> None:
    """A caller that closed an output wants nothing from it: what goes there goes nowhere.

    The descriptors are taken, so that no file of a store is opened under their numbers.
    """
    for number, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            fd = os.open(os.devnull, os.O_RDWR)
            if fd != number:
                os.dup2(fd, number)
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115


def main(argv: Sequence[str]) -> int:
    """Run one command line. Returns its exit code; never raises."""
    code = _main([os.fspath(arg) for arg in argv])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _silence()
    except (OSError, ValueError) as error:
        return _fail(_foreign(error), argv)
    return code


def _main(argv: list[str]) -> int:
    given: Globals | None = None
    try:
        from kvg.cli.invocation import Globals

        given = Globals()
        with given.stack:
            return _run(argv, given)
    except BrokenPipeError as error:
        if not _is_unread():
            return _fail(_foreign(error), argv, given)
        _silence()
        return 0  # of help and the like: what a verb gives is written by ``Output``
    except KeyboardInterrupt:
        return _interrupted(argv, given)
    except KvgError as error:
        return _fail(error, argv, given)
    except Exception as error:  # noqa: BLE001  the boundary
        return _fail(_foreign(error), argv, given)


def _interrupted(argv: Sequence[str], given: Globals | None) -> int:
    """As ``_fail``; another interrupt meanwhile changes nothing: this one ends the program."""
    import signal

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return _fail(Interrupted("interrupted"), argv, given)
    finally:
        signal.signal(signal.SIGINT, before)


def _run(argv: list[str], given: Globals) -> int:
    from kvg.cli.direct import read
    from kvg.cli.render import Output

    if argv and argv[0] == "--version":
        argv = ["version", *argv[1:]]
    call = read(argv, given)
    return _parsed(argv, given) if call is None else Output(given).write(call.run())


def _parsed(argv: list[str], given: Globals) -> int:
    """Run a command line by the parser, which also says what is wrong with one."""
    from typer import Exit, TyperException

    from kvg.cli.group import PROGRAM, build_root
    from kvg.cli.render import Output

    root = build_root()
    try:
        with root.make_context(PROGRAM, argv or ["--help"], obj=given) as ctx:
            return Output(given).write(root.invoke(ctx))
    except Exit as done:
        return done.exit_code
    except TyperException as error:
        raise usage_error(error) from None


def _is_unread() -> bool:
    """Whether it is standard output that nobody reads any more, and no other pipe."""
    import select

    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
        return bool(poll.poll(0))
    except (OSError, ValueError):
        return False


def _silence() -> None:
    from kvg.cli.render import silence_stdout

    silence_stdout()


def usage_error(error: Exception) -> UsageError:
    """A parser's complaint in this program's own form."""
    message = getattr(error, "format_message", lambda: str(error))()
    line = " ".join(message.split()).replace("Value error, ", "").rstrip(".")
    ctx = getattr(error, "ctx", None)
    where = _words(ctx)
    return UsageError(f"{where}: {line[:1].lower()}{line[1:]}", hint=f"{where} --help")


def _words(ctx: object) -> str:
    """The names of the commands of ``ctx``, outermost first."""
    words: list[str] = []
    while ctx is not None:
        words.append(str(getattr(ctx, "info_name", "")))
        ctx = getattr(ctx, "parent", None)
    return " ".join(reversed(words)) or "kvg"


def _is_nowhere() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _foreign(error: BaseException) -> KvgError:
    """What an exception that is not kvg's own means to the user."""
    if isinstance(error, FileNotFoundError) and _is_nowhere():
        return NotFound("the folder that kvg was started in is gone", hint="cd to another")
    if isinstance(error, OSError) and error.errno is not None:
        from kvg import durable

        try:
            durable.raise_translated(error, error.filename or "input or output")
        except KvgError as translated:
            return translated.with_traceback(error.__traceback__)
    if isinstance(error, ModuleNotFoundError) and error.name in MODEL_EXTRA:
        return Incompatible(f"{error.name}: not installed", hint="pip install 'kvg[model]'")
    if _is_no_memory(error):
        return NoSpace("out of memory").with_traceback(error.__traceback__)
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return KvgError("no thread could be started", hint="raise the limit: ulimit -u")
    text = f"unexpected {type(error).__name__}: {error}" if str(error) else type(error).__name__
    bug = Bug(text, hint="run it again with --debug and report what it prints")
    bug.__cause__ = error
    return bug


def _is_no_memory(error: BaseException) -> bool:
    """Whether there was no memory to be had, also for a library that was to be loaded or in torch,
    which say so in words alone."""
    return isinstance(error, MemoryError) or (
        isinstance(error, ImportError | RuntimeError)
        and any(words in str(error) for words in _NO_MEMORY)
    )


def _fail(error: KvgError, argv: Sequence[str], given: Globals | None = None) -> int:
    """Show ``error`` on standard error. Returns its exit code."""
    plain = list(argv[: argv.index("--")] if "--" in argv else argv)
    as_json = "--json" in plain or bool(given and given.json)
    try:
        if "--debug" in plain or (given and given.debug):
            import traceback

            traceback.print_exception(error, file=sys.stderr)
        lines = _json_lines(error, given) if as_json else _text_lines(error, given)
        print(*lines, sep="\n", file=sys.stderr, flush=True)  # noqa: T201
    except (OSError, ValueError):  # standard error is gone; the code still tells
        pass
    return error.code


def _json_lines(error: KvgError, given: Globals | None) -> list[str]:
    import json

    from kvg.flow.records import SCHEMA_VERSION

    value: dict[str, object] = {
        "type": "error",
        "schema_version": SCHEMA_VERSION,
        "code": error.code,
        "kind": error.kind,
        "message": error.message,
        "hint": error.hint,
    }
    kept = given.run.report.kept if given and given.run else []
    if kept:
        value["notes"] = [text for _, text in kept]
    return [json.dumps(value)]


def _text_lines(error: KvgError, given: Globals | None) -> list[str]:
    from kvg.cli.terminal import look, printable

    color = given.color if given and given.color else "auto"
    terminal = look(os.environ, color=color, progress=False, quiet=True)
    lines = [f"{terminal.err('error:', 'red')} {printable(error.message)}"]
    if error.hint:
        lines.append(f"{terminal.err('hint:', 'cyan')} {printable(error.hint)}")
    return lines


if __name__ == "__main__":
    run()
