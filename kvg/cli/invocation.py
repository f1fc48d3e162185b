"""One run of the command line: what was asked globally, the terminal, and the settings."""

from __future__ import annotations

import os
from contextlib import ExitStack, chdir
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from kvg.cli.reporting import StderrReport
from kvg.cli.terminal import ColorChoice, Terminal, look, printable
from kvg.errors import NotFound, UsageError

if TYPE_CHECKING:
    from kvg.cli.declare import Context
    from kvg.flow.session import Homes
    from kvg.flow.settings import Settings
    from kvg.flow.through import Link
    from kvg.store.store import Store


class Globals:
    """The global options as given; None where not given. ``shows`` is that of the verb."""

    directory: tuple[Path, ...] = ()
    store: Path | None = None
    json: bool = False
    quiet: bool = False
    verbose: bool = False
    debug: bool = False
    no_progress: bool = False
    color: ColorChoice | None = None
    lock_wait: float | None = None
    jobs: int | None = None
    yes: bool = False
    dry_run: bool = False
    device: str | None = None
    shows: bool = False
    run: Invocation | None = None

    def __init__(self) -> None:
        self.stack = ExitStack()

    def note(self, name: str, value: object) -> None:
        """Take in one option."""
        if name == "directory":
            self.directory = (*self.directory, *cast("list[Path]", value))
        else:
            setattr(self, name.rstrip("_"), value)


class Invocation:
    """What a verb works with. Made when the verb's arguments are parsed, before its body runs."""

    def __init__(self, given: Globals) -> None:
        self.given = given
        for folder in given.directory:
            _enter(given.stack, folder)

    @cached_property
    def terminal(self) -> Terminal:
        given = self.given
        color = given.color or cast("ColorChoice | None", self._configured("core.color")) or "auto"
        progress = not given.no_progress and self._configured("core.progress") is not False
        return look(os.environ, color=color, progress=progress, quiet=given.quiet or given.json)

    @cached_property
    def report(self) -> StderrReport:
        return StderrReport(self.terminal, json=self.given.json, quiet=self.given.quiet)

    @cached_property
    def settings(self) -> Settings:
        """The settings in force: flag, then environment, then store, then user configuration."""
        from kvg.cli.layers import make_settings

        return make_settings(self.given, os.environ, self.report, self.terminal)

    @cached_property
    def damaged_settings(self) -> Settings:
        """As ``settings``, whatever the store's configuration is like."""
        from kvg.cli.layers import make_settings

        given = self.given
        return make_settings(given, os.environ, self.report, self.terminal, is_damaged=True)

    @cached_property
    def store(self) -> Store:
        """The store this run is about, open. Raises ``NotFound``."""
        from kvg.flow.settings import open_store

        return open_store(self.settings)

    @cached_property
    def checked_store(self) -> Store:
        """As ``store``, for a verb that tells of its settings itself."""
        from kvg.flow.settings import open_store

        return open_store(self.settings, is_checked=True)

    @cached_property
    def root(self) -> Path:
        """The folder of the store this run is about; it is not opened. Raises ``NotFound``."""
        from kvg.cli.layers import store_path
        from kvg.flow.settings import find_root

        return find_root(store_path(self.given, os.environ), Path.cwd()).absolute()

    @cached_property
    def session_homes(self) -> Homes:
        """Where this user's sessions lie."""
        from kvg.cli.layers import runtime_path, state_path
        from kvg.client.place import folder_for
        from kvg.flow.session import Homes

        folder = folder_for(runtime_path(os.environ))
        return Homes(folder, state_path(os.environ) / "sessions")

    def link(self, session: str) -> Link:
        """The way to a resident session. Raises ``NotFound``, ``Untrusted``."""
        from kvg.cli.layers import runtime_path, store_root
        from kvg.client.place import find_place, folder_for
        from kvg.flow.through import Link

        place = find_place(folder_for(runtime_path(os.environ)), session)
        key_file = os.environ.get("KVG_KEY_FILE")
        return Link(
            place,
            self.report,
            store_root(self.given, os.environ),
            Path(key_file).absolute() if key_file else None,
            self.given.dry_run,
        )

    def ask(self, question: str) -> bool:
        """Put a question to the person at the terminal; anything but yes is a no."""
        import sys

        sys.stderr.write(f"{printable(question)} [y/N] ")
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    def _configured(self, key: str) -> object:
        from kvg.cli.layers import quick_look

        return quick_look(key, self.given, os.environ)


def invocation(ctx: Context) -> Invocation:
    """The run that ``ctx`` belongs to."""
    given = ctx.obj
    if not isinstance(given, Globals):
        raise UsageError("no command line to run for")
    if given.run is None:
        given.run = Invocation(given)
        command = ctx.command
        if given.dry_run and not getattr(command, "has_dry_run", False):
            raise UsageError(
                f"{' '.join(getattr(command, 'path', ()))}: has no --dry-run",
                hint="kvg help",
            )
    return given.run


MAX_STDIN_BYTES = 1 << 30


def stdin_bytes(most: int = MAX_STDIN_BYTES) -> bytes:
    """Everything on standard input. Raises ``UsageError`` for more than ``most`` bytes."""
    import sys

    return read_at_most(sys.stdin.buffer, most, what="standard input")


def read_at_most(file: IO[bytes], most: int, *, what: str) -> bytes:
    """All that is left of ``file``. Raises ``UsageError`` when that is more than ``most`` bytes."""
    data = file.read(most + 1)
    if len(data) > most:
        raise UsageError(f"{what}: larger than {most} bytes")
    return data


def _enter(stack: ExitStack, folder: Path) -> None:
    os.getcwd()  # it raises its own error where the folder to come back to is gone
    try:
        stack.enter_context(chdir(folder))
    except OSError as error:
        raise NotFound(
            f"{folder}: cannot enter: {(error.strerror or str(error)).lower()}", hint="check -C"
        ) from None
