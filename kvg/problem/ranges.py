"""Ranges of slots: which values a method was made for, and values drawn from them.

A number or date lies between ``least`` and ``most``; of a string or list these bound the length,
and ``items`` ranges over the elements. A bound that is None is none: values for a proof are then
drawn from a usual range, and any value is answered.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Final, TypeAlias, cast
from typing import Literal as OneOf

from kvg import canon
from kvg.canon import Json
from kvg.errors import Corrupt, UsageError
from kvg.frozen import frozen
from kvg.problem.literals import NUMERIC, Literal, Value, parse_literal

if TYPE_CHECKING:
    from decimal import Decimal
    from fractions import Fraction
    from random import Random

    Rank: TypeAlias = int | Fraction

End: TypeAlias = OneOf["least", "most"]
"""Which end of a range."""

FIELDS: Final = ("type", "name", "least", "most", "items")
MAX_LENGTH: Final = 10_000
_USUAL: Final[Mapping[str, tuple[str, str]]] = {
    "int": ("1", "60"),
    "decimal": ("0.5", "60.0"),
    "fraction": ("1/9", "9/2"),
    "percent": ("1%", "99%"),
    "date": ("1990-01-01", "2060-12-31"),
    "str": ("1", "12"),
    "list": ("1", "7"),
}
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,-éßΩя中"
_MOST_PLACES: Final = 12
_DENOMINATORS: Final = 30


@frozen
class SlotRange:
    """The values of one slot; ``least`` and ``most`` are literals as written."""

    type: str
    name: str | None = None
    least: str | None = None
    most: str | None = None
    items: SlotRange | None = None

    def __post_init__(self) -> None:
        low, high = (
            None if text is None else self._bound(text) for text in (self.least, self.most)
        )
        if low is not None and high is not None and low > high:
            raise UsageError(f"slot of type {self.type}: least {self.least} is above {self.most}")
        if self.items is not None and element_types(self.type) != (self.items.type,):
            raise UsageError(f"slot of type {self.type}: items of type {self.items.type}")

    def holds(self, literal: Literal) -> bool:
        """Whether the value of ``literal`` lies in the range."""
        if literal.type != self.type:
            return False
        size = _size(literal)
        if self.least is not None and size < self._bound(self.least):
            return False
        if self.most is not None and size > self._bound(self.most):
            return False
        return self.items is None or all(self.items.holds(item) for item in literal.items)

    def bounds(self) -> tuple[str, str]:
        """Where values for a proof are drawn from: the bounds, the usual ones where there are none.

        A usual bound gives way to a given one.
        """
        low, high = _USUAL["list" if self.type.startswith("list[") else self.type]
        low, high = self.least or low, self.most or high
        if self._bound(low) > self._bound(high):
            low, high = (low, low) if self.most is None else (high, high)
        return low, high

    def _bound(self, text: str) -> Rank:
        kind = "date" if self.type == "date" else None
        literal = parse_literal(text)
        if self.type in NUMERIC and literal.type in NUMERIC:
            return _rank(literal)
        if literal.type == (kind or "int"):
            size = _rank(literal)
            if kind or 0 <= size <= MAX_LENGTH:
                return size
        raise UsageError(f"slot of type {self.type}: {text} is no bound of it")


def _rank(literal: Literal) -> Rank:
    """A number for the place of a value among its kind."""
    value = literal.value
    if isinstance(value, int):
        return value
    if isinstance(value, date):
        return value.toordinal()
    from fractions import Fraction

    return Fraction(cast("Decimal | Fraction", value))


def _size(literal: Literal) -> Rank:
    if literal.type == "str":
        return len(literal.raw) - 2
    if literal.type.startswith("list["):
        return len(literal.items)
    return _rank(literal)


def element_types(kind: str) -> tuple[str, ...]:
    """The element types of a list type, ascending; none of another type and of ``list[]``."""
    if not kind.startswith("list["):
        return ()
    found, depth, word = [], 0, ""
    for char in kind[5:-1]:
        depth += (char == "[") - (char == "]")
        if char == "|" and depth == 0:
            found.append(word)
            word = ""
        else:
            word += char
    return (*found, word) if word else tuple(found)


def range_value(slot: SlotRange) -> Json:
    """``slot`` as a value of a canonical document."""
    return {
        "type": slot.type,
        "name": slot.name,
        "least": slot.least,
        "most": slot.most,
        "items": None if slot.items is None else range_value(slot.items),
    }


def parse_range(value: Json, *, what: str) -> SlotRange:
    """The range that a canonical document holds. Raises ``Corrupt``."""
    fields = canon.take(value, FIELDS, what=what)
    name, least, most = (
        None if fields[key] is None else canon.as_str(fields[key], what=f"{what}: {key}")
        for key in ("name", "least", "most")
    )
    items = None if fields["items"] is None else parse_range(fields["items"], what=what)
    kind = canon.as_str(fields["type"], what=f"{what}: type")
    try:
        return SlotRange(kind, name, least, most, items)
    except UsageError as error:
        raise Corrupt(f"{what}: {error.message}") from None


def read_ranges(data: bytes, types: Sequence[str], *, what: str) -> tuple[SlotRange, ...]:
    """Ranges as a person writes them: a JSON array of ``{name, least, most, items}`` for each slot.

    Every key may be left out; numbers may be JSON integers. Raises ``UsageError``.
    """
    try:
        value = canon.as_list(canon.parse_json(data, what=what), what=what)
    except Corrupt as error:
        raise UsageError(error.message, hint='e.g. [{"least": 1, "most": 100}]') from None
    if len(value) != len(types):
        raise UsageError(f"{what}: {len(value)} ranges for {len(types)} slots")
    pairs = zip(types, value, strict=True)
    return tuple(
        _given_range(kind, item, what=f"{what}: slot {i}") for i, (kind, item) in enumerate(pairs)
    )


def _given_range(kind: str, value: Json, *, what: str) -> SlotRange:
    if not isinstance(value, Mapping) or not set(value) <= {"name", "least", "most", "items"}:
        raise UsageError(f"{what}: not an object of name, least, most, items")
    items = value.get("items")
    inner = element_types(kind)
    if items is not None and len(inner) != 1:
        raise UsageError(f"{what}: items of a slot of type {kind}")
    name = value.get("name")
    if name is not None and not isinstance(name, str):
        raise UsageError(f"{what}: the name is not a string")
    least, most = (_given_bound(value.get(key), what) for key in ("least", "most"))
    within = None if items is None else _given_range(inner[0], items, what=f"{what} items")
    try:
        return SlotRange(kind, name, least, most, within)
    except UsageError as error:
        raise UsageError(f"{what}: {error.message}", hint=error.hint) from None


def _given_bound(value: Json, what: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise UsageError(f"{what}: a bound is an integer or a literal in a string")


def draw(slot: SlotRange, random: Random, *, end: End | None = None) -> Literal:
    """A literal in the range; the one nearest to that end of it when there is one.

    At the end of a list's lengths about half of its items are at the ends of their own range.
    """
    return parse_literal(_raw(slot, random, end))


def _raw(slot: SlotRange, random: Random, end: End | None) -> str:
    low, high = slot.bounds()
    if end is not None and slot.type in NUMERIC | {"date"}:
        at_end = _end(slot.type, low if end == "least" else high, end)
        if slot.holds(parse_literal(at_end)):
            return at_end
    first, last = (_rank(parse_literal(text)) for text in (low, high))
    if slot.type == "str":
        return '"' + "".join(random.choices(_LETTERS, k=_length(first, last, random, end))) + '"'
    if slot.type.startswith("list["):
        return _raw_list(slot, random, _length(first, last, random, end), end)
    if slot.type == "date":
        return date.fromordinal(random.randint(int(first), int(last))).isoformat()
    return _raw_number(slot.type, first, last, random)


def _end(kind: str, bound: str, end: End) -> str:
    """The literal of type ``kind`` that is nearest to ``bound`` from inside, to some places."""
    literal = parse_literal(bound)
    if literal.type == kind:
        return bound
    value = _rank(literal)
    if kind == "fraction":
        return f"{value.numerator}/{value.denominator}"
    if kind == "int":
        return _spelt(value, 0, end)
    shown, least, sign = (value * 100, 0, "%") if kind == "percent" else (value, 1, "")
    exact = (n for n in range(least, _MOST_PLACES) if (shown * 10**n).denominator == 1)
    return _spelt(shown, next(exact, 2), end) + sign


def _spelt(value: Rank, places: int, end: End) -> str:
    number = math.ceil(value * 10**places) if end == "least" else math.floor(value * 10**places)
    whole, part = divmod(abs(number), 10**places)
    return f"{'-' if number < 0 else ''}{whole}{f'.{part:0{places}}' if places else ''}"


def _length(first: Rank, last: Rank, random: Random, end: End | None) -> int:
    if end is not None:
        return int(first if end == "least" else last)
    return random.randint(int(first), int(last))


def _raw_list(slot: SlotRange, random: Random, length: int, end: End | None) -> str:
    kinds = element_types(slot.type)
    if not kinds:
        return "[]"
    ranges = [slot.items or SlotRange(kind) for kind in kinds]
    chosen = [*ranges, *random.choices(ranges, k=max(0, length - len(ranges)))]
    random.shuffle(chosen)
    ends = random.choices((None, end), k=len(chosen))
    items = (_raw(item, random, at) for item, at in zip(chosen, ends, strict=True))
    return "[" + ", ".join(items) + "]"


def _raw_number(kind: str, first: Rank, last: Rank, random: Random) -> str:
    if kind == "int":
        return str(_between(first, last, random))
    if kind == "percent":
        return f"{_between(first * 100, last * 100, random)}%"
    if kind == "fraction":
        below = random.randint(2, _DENOMINATORS)
        return f"{_between(first * below, last * below, random)}/{below}"
    from fractions import Fraction

    hundredths = _between(first * 100, last * 100, random)
    return _spelt(Fraction(hundredths, 100), 2, "least")


def _between(first: Rank, last: Rank, random: Random) -> int:
    """An integer in the range. Raises ``UsageError`` when there is none to be drawn."""
    low, high = math.ceil(first), math.floor(last)
    if low > high:
        raise UsageError(f"no value to be drawn between {first} and {last}")
    return random.randint(low, high)


def plain(value: Value) -> object:
    """A slot's value for JSON: exact, so a decimal, a fraction and a date are strings."""
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    return value if isinstance(value, int) else str(value)
