"""Notices, warnings and progress, as the command line shows them: on standard error only."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from kvg.cli.terminal import Terminal, printable
from kvg.report import SilentTask

if TYPE_CHECKING:
    from types import TracebackType

    from rich.progress import Progress, TaskID

DELAY_S = 0.3
"""A task that ends sooner shows no bar, and does not pay for importing rich."""


class StderrReport:
    """A report on standard error. Under ``--json`` it is kept, for ``main`` to write at the end."""

    def __init__(self, terminal: Terminal, *, json: bool, quiet: bool) -> None:
        self._terminal = terminal
        self._json = json
        self._quiet = quiet
        self._bar: BarTask | None = None
        self.kept: list[tuple[str, str]] = []

    def notice(self, text: str) -> None:
        self._tell("notice", text)

    def warning(self, text: str) -> None:
        self._tell("warning", text)

    def task(self, label: str, total: int, unit: str) -> SilentTask | BarTask:
        if self._json or not self._terminal.progress or self._bar is not None:
            return SilentTask()
        self._bar = BarTask(self, label, total, unit)
        return self._bar

    def forget(self) -> None:
        """The task that was shown is over."""
        self._bar = None

    def _tell(self, kind: str, text: str) -> None:
        if self._json:
            if kind == "warning" or not self._quiet:
                self.kept.append((kind, text))
        elif kind == "warning":
            self._write(self._terminal.err("warning:", "yellow") + " " + printable(text))
        elif not self._quiet:
            self._write(printable(text))

    def _write(self, line: str) -> None:
        if self._bar is not None:
            self._bar.interrupt(line)
        else:
            print(line, file=sys.stderr, flush=True)  # noqa: T201


class BarTask:
    """A task with a bar, drawn by rich once it has lasted ``DELAY_S``."""

    def __init__(self, report: StderrReport, label: str, total: int, unit: str) -> None:
        self._report = report
        self._label = label
        self._total = total
        self._unit = unit
        self._done = 0
        self._progress: Progress | None = None
        self._id: TaskID | None = None
        self._guard = threading.Lock()
        self._is_over = False
        self._timer = threading.Timer(DELAY_S, self._draw)
        self._timer.daemon = True
        self._timer.start()

    def advance(self, amount: int) -> None:
        with self._guard:
            self._done += amount
            if self._progress is not None and self._id is not None:
                self._progress.update(self._id, completed=self._done)

    def _draw(self) -> None:
        """Show the bar: a step may take longer than a person waits for a sign of life."""
        with self._guard:
            if not self._is_over:
                self._progress = self._start()

    def interrupt(self, line: str) -> None:
        """Write ``line`` above the bar."""
        if self._progress is not None:
            self._progress.console.print(line, markup=False, highlight=False)
        else:
            print(line, file=sys.stderr, flush=True)  # noqa: T201

    def __enter__(self) -> BarTask:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._report.forget()
        self._timer.cancel()
        with self._guard:
            self._is_over = True
            if self._progress is not None:
                self._progress.stop()

    def _start(self) -> Progress:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        amount = DownloadColumn() if self._unit == "B" else MofNCompleteColumn()
        tail = () if self._unit == "B" else (TextColumn(self._unit),)
        progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            amount,
            *tail,
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._id = progress.add_task(self._label, total=self._total or None, completed=self._done)
        progress.start()
        return progress
