"""What a ref has to be for a move of it to be made."""

from __future__ import annotations

from typing import Final, TypeAlias

from kvg.digest import Digest


class Anything:
    """The type of ``ANY``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ANY"


ANY: Final = Anything()
"""Move a ref whatever it is now."""

Expectation: TypeAlias = Digest | Anything | None
"""What a ref has to be now: a digest, nothing (None), or anything."""
