"""Generated families for ``bench select``: groups of near twins, and twins that are not stored."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random

from kvg.frozen import frozen

OPERATIONS = (
    *("Sum", "Count", "List", "Multiply", "Average"),
    *("Print", "Find", "Check", "Sort", "Reverse"),
)
THINGS = (
    *("integers", "even integers", "odd integers", "primes", "squares"),
    *("cubes", "multiples", "digits", "divisors", "powers"),
)
PLACES = (
    *("from {} to {}", "between {} and {}", "up to {} and {}", "after {} before {}"),
    "of {} or {}",
)
STORED = (
    ("{op} the {thing} {place}.", None, "ii"),
    ("{op} the {thing} {place}.", "s0 < s1", "ii"),
    ("{op} the {thing} {place}.", "s0 <= s1", "ii"),
    ("{op} the {thing} not {place}.", None, "ii"),
    ("{low} the {thing} {place}.", None, "ii"),
    ("{op} the {thing} {place}.", None, "dd"),
    ("{op} all the {thing} {place}.", None, "ii"),
    ("{op} the {thing} {place}!", None, "ii"),
    ("{op} the {thing} {place} twice.", None, "ii"),
)
ABSENT = (
    ("{op} the {thing} {place}.", "s1 < s0", "ii"),
    ("{op} the {thing} {place} thrice.", None, "ii"),
    ("{op} the {thing} {place}.", None, "id"),
    ("{op} only the {thing} {place}.", None, "ii"),
    ("{op} the {thing} {place}", None, "ii"),
)
"""Forms of every group that are never stored: each is one word, sign or type from one that is."""

MOST = 10**6
"""What the values of every problem are below."""


@frozen
class Form:
    """One family: a wording with places for two values, a constraint, and the kinds of values."""

    wording: str
    constraint: str | None
    kinds: str

    def instance(self, random: Random, *, is_ascending: bool = False) -> str:
        """A problem of the family with values of its own, which meet the constraint of a stored
        family where they are to be ascending."""
        drawn = [random.randrange(2, MOST) for _ in self.kinds]
        values = sorted(drawn) if is_ascending else drawn
        spelt = zip(values, self.kinds, strict=True)
        return self.wording.format(*(f"{n}{'.5' if kind == 'd' else ''}" for n, kind in spelt))


def stored_forms(count: int) -> tuple[Form, ...]:
    """The first ``count`` families, group after group; at most 4,500."""
    return tuple(form for form, _ in zip(_forms(STORED), range(count), strict=False))


def absent_forms(n_groups: int) -> tuple[Form, ...]:
    """The twins of the first ``n_groups`` groups that are not stored."""
    most = range(n_groups * len(ABSENT))
    return tuple(form for form, _ in zip(_forms(ABSENT), most, strict=False))


def _forms(kinds: tuple[tuple[str, str | None, str], ...]) -> Iterator[Form]:
    for op, thing, place in product(OPERATIONS, THINGS, PLACES):
        for form, constraint, values in kinds:
            wording = form.format(op=op, low=op.lower(), thing=thing, place=place)
            yield Form(wording, constraint, values)
