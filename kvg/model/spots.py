"""Passes longer than the self-check's: the first of each kind have tokens computed again alone.

The census knows operators, not which dimension of a tensor holds tokens: a mean along the last one
may be over a row, or over a text that was laid there. What mixes tokens shows in the bits.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kvg.errors import Incompatible
from kvg.model.selfcheck import CHECK_TOKENS, HINT

CHECK_ROWS = 2
"""Sequences side by side that the self-check runs."""


@dataclass(frozen=True, slots=True)
class Spot:
    """The tokens of a pass that are computed again: of sequence ``row``, by index, ascending."""

    row: int
    indices: tuple[int, ...]


NO_SPOT = Spot(0, ())


AGAIN: Final = 8
"""One pass in so many that an earlier session looked at is looked at again."""


class Spots:
    """Which passes of one session are looked at: those longer than any before, among those of as
    many sequences and of a length between the same powers of two.

    ``known`` are those of earlier sessions. Who can write that record can write the program, too;
    of each kind the first pass of a session is looked at all the same, one time in ``AGAIN``.
    """

    def __init__(self, known: Mapping[tuple[int, int], int] | None = None) -> None:
        self._longest = {
            kind: longest for kind, longest in (known or {}).items() if secrets.randbelow(AGAIN)
        }
        self._refused: set[tuple[int, int]] = set()

    def refuse(self, counts: Sequence[int], width: int) -> None:
        """A token of a pass had other bits alone: none of that kind is made any more, and what was
        looked at before says nothing."""
        self._longest = {}
        self._refused.add(_kind(counts, width))

    def is_refused(self, counts: Sequence[int], width: int) -> bool:
        """Whether a pass of this kind was refused: another try could draw other tokens."""
        return _kind(counts, width) in self._refused

    @property
    def longest(self) -> Mapping[tuple[int, int], int]:
        return self._longest

    def draw(self, counts: Sequence[int], width: int) -> Spot:
        """What to look at in a pass of ``width`` tokens for each sequence, ``counts`` of them real:
        of a sequence drawn by chance its last token, and one drawn among those before."""
        is_checked = len(counts) <= CHECK_ROWS and width <= CHECK_TOKENS
        if is_checked or width <= self._longest.get(_kind(counts, width), 0):
            return NO_SPOT
        row = secrets.randbelow(len(counts))
        last = counts[row] - 1
        return Spot(row, (secrets.randbelow(last), last) if last else (0,))

    def passed(self, counts: Sequence[int], width: int) -> None:
        """A pass was looked at, and its tokens were the same alone."""
        kind = _kind(counts, width)
        self._longest[kind] = max(width, self._longest.get(kind, 0))


def mixed(model: object, n_tokens: int) -> Incompatible:
    """What a pass of ``n_tokens`` is refused with when a token of it is another one alone."""
    return Incompatible(
        f"{type(model).__name__}: a token of a pass over {n_tokens:,} has other bits alone: the "
        "model mixes tokens outside its attention, or computes by how many there are",
        hint=HINT,
    )


def _kind(counts: Sequence[int], width: int) -> tuple[int, int]:
    return len(counts), (width - 1).bit_length()
