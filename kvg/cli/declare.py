"""How a verb declares its command line: options and arguments, as plain values.

They stand in the annotations of a verb's function. ``direct`` reads a command line by them alone;
``group`` makes typer's parser from them, for help, completion and everything that is not plain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Option:
    """An option, by its names; ``--yes/--no`` is a pair of flags. ``min`` and ``max`` bound it.

    ``callback`` looks at the value, given or not, and gives it back or another. Raises
    ``UsageError``.
    """

    __slots__ = ("callback", "help", "max", "metavar", "min", "names")

    def __init__(
        self,
        name: str,
        *more: str,
        help: str,
        metavar: str | None = None,
        min: float | None = None,
        max: float | None = None,
        callback: Callable[[Any], object] | None = None,
    ) -> None:
        self.names: Sequence[str] = (name, *more)
        self.callback = callback
        self.help = help
        self.metavar = metavar
        self.min = min
        self.max = max


class Argument:
    """A word that stands for itself, or, where a list is declared, all that are left."""

    __slots__ = ("help", "max", "metavar", "min")
    callback = None
    names: Sequence[str] = ()

    def __init__(
        self,
        *,
        metavar: str,
        help: str,
        min: float | None = None,
        max: float | None = None,
    ) -> None:
        self.help = help
        self.metavar = metavar
        self.min = min
        self.max = max


class Context(Protocol):
    """What a verb is called with: ``obj`` are the global options, ``command`` is the verb."""

    obj: object

    @property
    def command(self) -> object: ...
