"""What a flow tells while it works: notices, warnings and progress. The command line shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from types import TracebackType


class Task(Protocol):
    """One piece of work with a known size; a context manager."""

    def advance(self, amount: int) -> None:
        """``amount`` more of the task's units are done."""

    def __enter__(self) -> Task: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Report(Protocol):
    """Where a flow sends what is not its result."""

    def notice(self, text: str) -> None:
        """Something the user did not ask for but should know: a key was made, a key was trusted."""

    def warning(self, text: str) -> None:
        """Something that may be wrong, though the work goes on."""

    def task(self, label: str, total: int, unit: str) -> Task:
        """Begin a task of ``total`` units; ``unit`` is ``B`` for bytes or a plural noun."""


class SilentTask:
    """A task that nobody watches."""

    def advance(self, amount: int) -> None:
        return None

    def __enter__(self) -> SilentTask:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None


class SilentReport:
    """A report that nobody reads: the default of the Python interface."""

    def notice(self, text: str) -> None:
        return None

    def warning(self, text: str) -> None:
        return None

    def task(self, label: str, total: int, unit: str) -> SilentTask:
        return SilentTask()
