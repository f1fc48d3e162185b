"""Records about kvg itself."""

from __future__ import annotations

from typing import ClassVar

from kvg.flow.records.record import Record
from kvg.frozen import frozen


@frozen
class Version(Record):
    """This kvg."""

    type: ClassVar[str] = "version"
    version: str


@frozen
class HelpText(Record):
    """A help page, as text."""

    type: ClassVar[str] = "help"
    text: str


@frozen
class ConfigEntry(Record):
    """A setting in force; ``origin`` is flag, environment, store, user or default.

    ``value`` is None where it was taken out of its file.

    ``source`` is the flag, variable or file that gave it; both are None where not asked for.
    """

    type: ClassVar[str] = "setting"
    key: str
    value: object
    origin: str | None
    source: str | None
