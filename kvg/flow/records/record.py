"""What every record has."""

from __future__ import annotations

from typing import ClassVar

SCHEMA_VERSION = 1
"""Of every JSON record."""


class Record:
    """What every record has."""

    __slots__ = ()
    type: ClassVar[str]

    @property
    def exit_code(self) -> int:
        return 0
