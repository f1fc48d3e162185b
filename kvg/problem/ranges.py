"""Ranges of slots: which values a method was made for, and values drawn from them.

A number or date lies between ``least`` and ``most``; of a string or list these bound the length,
``items`` ranges over the elements, and ``letters`` are those of a string. What is None is as usual:
values for a proof are drawn from there, and nothing beyond it is in the range.

A number is as fine as what is drawn: a decimal or percentage has no more places than a bound is
written with (a decimal two at least), a fraction no larger denominator than a bound (30 at least).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Final, TypeAlias, cast
from typing import Literal as OneOf

from kvg import canon
from kvg.canon import Json
from kvg.errors import Corrupt, UsageError
from kvg.frozen import frozen
from kvg.problem.literals import MAX_DIGITS, MAX_LIST_DEPTH, NUMERIC, Literal, Value, parse_literal

if TYPE_CHECKING:
    from decimal import Decimal
    from fractions import Fraction
    from random import Random

    Rank: TypeAlias = int | Fraction

End: TypeAlias = OneOf["least", "most"]
"""Which end of a range."""

FIELDS: Final = ("type", "name", "least", "most", "items")
LETTERS: Final = "letters"
"""The field of a string's letters, which is left out where they are the usual ones."""

MAX_LENGTH: Final = 10_000
_USUAL: Final[Mapping[str, tuple[str, str]]] = {
    "int": ("1", "60"),
    "decimal": ("0.5", "60.0"),
    "fraction": ("1/9", "9/2"),
    "percent": ("1%", "99%"),
    "date": ("1990-01-01", "2060-12-31"),
    "str": ("1", "12"),
}
_USUAL_ITEMS: Final = 7
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,-éßΩя中"
_MOST_PLACES: Final = 12
_DECIMAL: Final[Mapping[str, int]] = {"decimal": 2, "percent": 0}
"""What is written with places, and how many there may be at least."""

_SHARE: Final = 0.5
"""How many drawn decimals have fewer places than may be; in a range with exponents, have one."""

_ODD_NUMBER: Final = re.compile(r"^\+|(?<![0-9.])0[0-9]", re.ASCII)
_ZEROS_AT_END: Final = re.compile(r"(?:\.|(\.[0-9]*[1-9]))0+%$", re.ASCII)
_SHOWN: Final = 40
_LIST: Final = re.compile(r"list\[.*\]", re.DOTALL)
_DENOMINATORS: Final = 30


@frozen
class SlotRange:
    """The values of one slot; ``least`` and ``most`` are literals as written."""

    type: str
    name: str | None = None
    least: str | None = None
    most: str | None = None
    items: SlotRange | None = None
    letters: str | None = None

    def __post_init__(self) -> None:
        _check_type(self.type)
        low, high = (
            None if text is None else self._bound(text) for text in (self.least, self.most)
        )
        if low is not None and high is not None and low > high:
            raise UsageError(f"slot of type {self.type}: least {self.least} is above {self.most}")
        if self.items is not None and element_types(self.type) != (self.items.type,):
            raise UsageError(f"slot of type {self.type}: items of type {self.items.type}")
        if self.letters is not None:
            _check_letters(self.type, self.letters)

    def holds(self, literal: Literal) -> bool:
        """Whether the value of ``literal`` lies in the range."""
        return self.outside(literal) is None

    def outside(self, literal: Literal) -> str | None:
        """What of ``literal`` lies outside the range, in words; None when it lies inside."""
        shown = literal.raw[:_SHOWN]
        if literal.type != self.type:
            return f"{shown} ({literal.type})"
        if self.type in NUMERIC and _ODD_NUMBER.search(literal.raw):
            return f"{shown} (with a plus sign or a leading zero, as no value is drawn)"
        if self.type == "decimal" and _has_exponent(literal.raw) and not self.is_scientific:
            return f"{shown} (with an exponent, as no value is drawn)"
        if self.type in NUMERIC and literal.raw[0] in "-−" and not literal.value:
            return f"{shown} (a zero with a sign, as no value is drawn)"
        low, high = (self._bound(text) for text in self.bounds())
        size = _size(literal)
        if not low <= size <= high:
            unit = _unit(self.type)
            return f"{shown} ({size} {unit})" if unit else shown
        if self.type == "fraction" and _in_lowest_terms(literal.raw) != literal.raw:
            return f"{shown} (not in lowest terms, as a program is given it)"
        if self.type == "percent" and _ZEROS_AT_END.search(literal.raw):
            return f"{shown} (with a zero at its end, which no program is given)"
        return self._too_fine(literal, shown) or self._unlike(literal, shown)

    def bounds(self) -> tuple[str, str]:
        """Where values for a proof are drawn from: the bounds, the usual ones where there are none.

        A usual bound gives way to a given one.
        """
        low, high = self._usual()
        low, high = self.least or low, self.most or high
        if self._bound(low) > self._bound(high):
            low, high = (low, low) if self.most is None else (high, high)
        return low, high

    def closed(self, own: Sequence[Literal] = ()) -> SlotRange:
        """The same range with no side open: the usual limits where one was, made wider to hold
        ``own`` values. Raises ``UsageError`` where a given bound is beyond the usual other one."""
        own = [item for item in own if item.type == self.type]
        usual = self._usual()
        bounds = [self._as_bound(item) for item in own]
        low = self.least or min((usual[0], *bounds), key=self._bound)
        high = self.most or max((usual[1], *bounds), key=self._bound)
        if self._bound(low) > self._bound(high):
            raise UsageError(
                f"slot of type {self.type}: {self.least or self.most} is beyond the usual other "
                f"end, {high if self.most is None else low}",
                hint="give both least and most",
            )
        if self.type in _DECIMAL:
            low, high = self._as_fine(own, low, high)
        kinds = element_types(self.type)
        items = None
        if len(kinds) == 1:
            inner = [element for item in own for element in item.items]
            items = (self.items or SlotRange(kinds[0])).closed(inner)
        letters = self.letters
        if self.type == "str" and letters is None:
            letters = _with_letters(_LETTERS, own)
        return SlotRange(self.type, self.name, low, high, items, letters)

    @property
    def is_open(self) -> bool:
        """Whether any side of it, or of its elements, is left to what is usual."""
        if element_types(self.type) and (self.items or SlotRange("int")).is_open:
            return True
        if self.type == "str" and self.letters is None:
            return True
        return self.least is None or self.most is None

    def as_proved(self) -> SlotRange:
        """With the bounds that values are drawn from, where they are left open."""
        low, high = self.bounds()
        items = None if self.items is None else self.items.as_proved()
        letters = (self.letters or _LETTERS) if self.type == "str" else None
        return SlotRange(self.type, self.name, low, high, items, letters)

    def words(self) -> str:
        """The range for a person."""
        low, high = self.bounds()
        span = low if low == high else f"{low} to {high}"
        if self.type == "str":
            return f"{span} characters of {len(self.letters or _LETTERS)} letters"
        kinds = element_types(self.type)
        if kinds:
            inner = " or ".join(f"{slot.type} {slot.words()}" for slot in self.elements())
            return f"{span} items, each {inner}"
        if self.type in _DECIMAL:
            return f"{span}, {self.fineness()} places at most"
        return f"{span}, over {self.fineness()} at most" if self.type == "fraction" else span

    def elements(self) -> tuple[SlotRange, ...]:
        """The ranges of a list's elements, one of each type that there is."""
        return tuple(self.items or SlotRange(kind) for kind in element_types(self.type))

    def most_parts(self) -> int:
        """Of how many elements and characters a value may be made."""
        if not _unit(self.type):
            return 1
        length = int(self._bound(self.bounds()[1]))
        return length * max((slot.most_parts() for slot in self.elements()), default=1)

    def _usual(self) -> tuple[str, str]:
        if not self.type.startswith("list["):
            return _USUAL[self.type]
        n_kinds = len(element_types(self.type))
        return str(n_kinds), str(max(n_kinds, _USUAL_ITEMS) if n_kinds else 0)

    def _as_bound(self, literal: Literal) -> str:
        """The bound at which ``literal`` itself lies."""
        if _unit(self.type):
            return str(min(int(_size(literal)), MAX_LENGTH))
        return literal.raw.replace("−", "-").lstrip("+")

    def _as_fine(self, own: Sequence[Literal], low: str, high: str) -> tuple[str, str]:
        """The ends, where one was open so written that ``own`` values are among what is drawn."""
        places = max((_places(item) for item in own), default=0)
        if places > max(_DECIMAL[self.type], *(_written(self.type, end) for end in (low, high))):
            if self.most is None:
                high = _spelt_as(self.type, self._bound(high), places, "most")
            elif self.least is None:
                low = _spelt_as(self.type, self._bound(low), places, "least")
        return low, high

    def fineness(self) -> int:
        """The places of a decimal or percentage, or the largest denominator of a fraction."""
        if self.type == "fraction":
            found = (_rank(parse_literal(text)).denominator for text in self.bounds())
            return max(_DENOMINATORS, *found)
        return max(_DECIMAL[self.type], *(_written(self.type, text) for text in self.bounds()))

    @property
    def is_scientific(self) -> bool:
        """Whether values are drawn with an exponent, as one of the bounds is written."""
        return self.type == "decimal" and any(map(_has_exponent, self.bounds()))

    def _too_fine(self, literal: Literal, shown: str) -> str | None:
        if self.type == "fraction":
            below = _rank(literal).denominator
            return f"{shown} (a denominator of {below})" if below > self.fineness() else None
        if self.type not in _DECIMAL:
            return None
        places = _places(literal)
        return f"{shown} ({places} places)" if places > self.fineness() else None

    def _unlike(self, literal: Literal, shown: str) -> str | None:
        """What a string or a list holds that is not in the range."""
        if self.type == "str":
            known = set(self.letters or _LETTERS)
            other = next((char for char in literal.raw[1:-1] if char not in known), None)
            return None if other is None else f"{shown} (with {other!r})"
        ranges = {slot.type: slot for slot in self.elements()}
        for number, item in enumerate(literal.items):
            found = ranges[item.type].outside(item)
            if found is not None:
                return f"item {number}, {found}"
        return None

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


def outside_of(ranges: Sequence[SlotRange], slots: Sequence[Literal]) -> str | None:
    """Which slot's value a method with ``ranges`` was not proved for, and what to do."""
    if len(ranges) != len(slots):
        return f"it has {len(ranges)} slots, not {len(slots)}"
    for number, (slot, literal) in enumerate(zip(ranges, slots, strict=True)):
        found = slot.outside(literal)
        if found is not None:
            return (
                f"slot {slot.name or f's{number}'}: {found} is not within {slot.words()} "
                f"({slot.type}), what it is proved for: kvg method add --slots FILE"
            )
    return None


def _check_type(kind: str) -> None:
    """Raise ``UsageError`` unless ``kind`` is the type of a literal."""
    depth, waiting = 0, [kind]
    while waiting:
        inner = [element for one in waiting for element in element_types(one)]
        known = all(one in _USUAL or _LIST.fullmatch(one) for one in waiting)
        if not known or depth > MAX_LIST_DEPTH:
            raise UsageError(f"{kind[:_SHOWN]}: no type of a slot")
        depth, waiting = depth + 1, inner


def _check_letters(kind: str, letters: str) -> None:
    if kind != "str":
        raise UsageError(f"slot of type {kind}: letters are of a string")
    if not letters or set(letters) & set('"\r\n'):
        raise UsageError("letters: none, or one that ends a string: a quotation mark, a line end")


def _with_letters(letters: str, own: Sequence[Literal]) -> str:
    """``letters``, and those of ``own`` strings that can be drawn."""
    more = dict.fromkeys("".join(item.raw[1:-1] for item in own))
    return letters + "".join(char for char in more if char not in letters + '"\r')


def _unit(kind: str) -> str | None:
    """What the bounds of a type count; None where they bound its values."""
    if kind == "str":
        return "characters"
    return "items" if kind.startswith("list[") else None


def _written(kind: str, bound: str) -> int:
    """The places that ``bound`` has as it is written; where it is of another type, those that a
    ``kind`` needs for it, two if there is no end to them."""
    literal = parse_literal(bound)
    if literal.type == kind:
        return _places(literal)
    shown = _rank(literal) * (100 if kind == "percent" else 1)
    return next((n for n in range(_MOST_PLACES) if (shown * 10**n).denominator == 1), 2)


def _places(literal: Literal) -> int:
    """The places that a decimal or percentage is written with; a program sees them."""
    from decimal import Decimal

    shown = Decimal(literal.raw.replace("−", "-").rstrip("%"))
    return max(0, -int(shown.as_tuple().exponent))


def _has_exponent(raw: str) -> bool:
    return "." in raw and "e" in raw.lower()


def _rank(literal: Literal) -> Rank:
    """A number for the place of a value among its kind."""
    value = literal.value
    if isinstance(value, int):
        return value
    if isinstance(value, date):
        return value.toordinal()
    from fractions import Fraction

    if literal.type == "decimal" and abs(cast("Decimal", value).adjusted()) > MAX_DIGITS:
        raise UsageError(f"{literal.raw[:_SHOWN]}: a number of that size is too long to use")
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


def range_value(slot: SlotRange) -> Mapping[str, Json]:
    """``slot`` as a value of a canonical document."""
    letters: Mapping[str, Json] = {} if slot.letters is None else {LETTERS: slot.letters}
    return {
        "type": slot.type,
        "name": slot.name,
        "least": slot.least,
        "most": slot.most,
        "items": None if slot.items is None else range_value(slot.items),
        **letters,
    }


def parse_range(value: Json, *, what: str) -> SlotRange:
    """The range that a canonical document holds. Raises ``Corrupt``."""
    has_letters = isinstance(value, Mapping) and LETTERS in value
    fields = canon.take(value, (*FIELDS, LETTERS) if has_letters else FIELDS, what=what)
    name, least, most = (
        None if fields[key] is None else canon.as_str(fields[key], what=f"{what}: {key}")
        for key in ("name", "least", "most")
    )
    letters = canon.as_str(fields[LETTERS], what=f"{what}: {LETTERS}") if has_letters else None
    items = None if fields["items"] is None else parse_range(fields["items"], what=what)
    kind = canon.as_str(fields["type"], what=f"{what}: type")
    try:
        return SlotRange(kind, name, least, most, items, letters)
    except UsageError as error:
        raise Corrupt(f"{what}: {error.message}") from None


def read_ranges(data: bytes, types: Sequence[str], *, what: str) -> tuple[SlotRange, ...]:
    """Ranges as a person writes them: a JSON array of ``{name, least, most, items, letters}``.

    Every key may be left out; numbers may be JSON integers. Raises ``UsageError``.
    """
    try:
        value = canon.as_list(canon.parse_json(data, what=what), what=what)
    except Corrupt as error:
        hint = 'e.g. [{"least": 1, "most": 100}]; a bound past 2^53-1 in quotes'
        raise UsageError(error.message, hint=hint) from None
    if len(value) != len(types):
        raise UsageError(f"{what}: {len(value)} ranges for {len(types)} slots")
    pairs = zip(types, value, strict=True)
    found = tuple(
        _given_range(kind, item, what=f"{what}: slot {i}") for i, (kind, item) in enumerate(pairs)
    )
    _check_names(found, what)
    return found


def _check_names(ranges: Sequence[SlotRange], what: str) -> None:
    from kvg.problem.constraint import is_free_name

    names = [slot.name for slot in ranges]
    for number, name in enumerate(names):
        if name is not None and (not is_free_name(name) or name in names[:number]):
            raise UsageError(f"{what}: slot {number}: {name!r}: not a name of its own")


def _given_range(kind: str, value: Json, *, what: str) -> SlotRange:
    known = {"name", "least", "most", "items", LETTERS}
    if not isinstance(value, Mapping) or not set(value) <= known:
        raise UsageError(f"{what}: not an object of name, least, most, items, letters")
    items = value.get("items")
    inner = element_types(kind)
    if items is not None and len(inner) != 1:
        raise UsageError(f"{what}: items of a slot of type {kind}")
    name, letters = (_given_text(value, key, what) for key in ("name", LETTERS))
    least, most = (_given_bound(value.get(key), what) for key in ("least", "most"))
    within = None if items is None else _given_range(inner[0], items, what=f"{what} items")
    try:
        return SlotRange(kind, name, least, most, within, letters)
    except UsageError as error:
        raise UsageError(f"{what}: {error.message}", hint=error.hint) from None


def _given_text(value: Mapping[str, Json], key: str, what: str) -> str | None:
    text = value.get(key)
    if text is not None and not isinstance(text, str):
        raise UsageError(f"{what}: the {key} is not a string")
    return text


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
    raw = _drawn(slot, random, end)
    if slot.type == "fraction":
        return _in_lowest_terms(raw)
    return _ZEROS_AT_END.sub(r"\1%", raw) if slot.type == "percent" else raw


def _drawn(slot: SlotRange, random: Random, end: End | None) -> str:
    low, high = slot.bounds()
    if end is not None and slot.type in NUMERIC | {"date"}:
        at_end = _end(slot.type, low if end == "least" else high, end)
        at_end = _in_lowest_terms(at_end) if slot.type == "fraction" else at_end
        if slot.holds(parse_literal(at_end)):
            return at_end
    first, last = (_rank(parse_literal(text)) for text in (low, high))
    if slot.type == "str":
        letters = random.choices(slot.letters or _LETTERS, k=_length(first, last, random, end))
        return f'"{"".join(letters)}"'
    if slot.type.startswith("list["):
        return _raw_list(slot, random, _length(first, last, random, end), end)
    if slot.type == "date":
        return date.fromordinal(random.randint(int(first), int(last))).isoformat()
    return _raw_number(slot, first, last, random)


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
    return _spelt_as(kind, value, max(1 if kind == "decimal" else 0, _written(kind, bound)), end)


def _in_lowest_terms(raw: str) -> str:
    """A fraction as a program is given it, with its sign as it is written."""
    above, below = map(int, raw.lstrip("-−").split("/"))
    common = math.gcd(above, below)
    sign = raw[: raw.index(raw.lstrip("-−"))]
    return f"{sign if above else ''}{above // common}/{below // common}"


def _spelt_as(kind: str, value: Rank, places: int, end: End) -> str:
    """A decimal or percentage of ``places``, the one nearest to ``value`` from inside."""
    return (
        f"{_spelt(value * 100, places, end)}%" if kind == "percent" else _spelt(value, places, end)
    )


def _spelt(value: Rank, places: int, end: End) -> str:
    number = math.ceil(value * 10**places) if end == "least" else math.floor(value * 10**places)
    whole, part = divmod(abs(number), 10**places)
    return f"{'-' if number < 0 else ''}{whole}{f'.{part:0{places}}' if places else ''}"


def _length(first: Rank, last: Rank, random: Random, end: End | None) -> int:
    if end is not None:
        return int(first if end == "least" else last)
    return random.randint(int(first), int(last))


def _raw_list(slot: SlotRange, random: Random, length: int, end: End | None) -> str:
    ranges = slot.elements()
    if not ranges:
        return "[]"
    chosen = [*ranges, *random.choices(ranges, k=max(0, length - len(ranges)))]
    random.shuffle(chosen)
    ends = random.choices((None, end), k=len(chosen))
    items = (_raw(item, random, at) for item, at in zip(chosen, ends, strict=True))
    return "[" + ", ".join(items) + "]"


def _raw_number(slot: SlotRange, first: Rank, last: Rank, random: Random) -> str:
    if slot.type == "int":
        return str(_between(first, last, random))
    if slot.type == "fraction":
        below = random.randint(2, slot.fineness())
        return f"{_between(first * below, last * below, random)}/{below}"
    from fractions import Fraction

    places, hundred = slot.fineness(), 100 if slot.type == "percent" else 1
    fewer = random.randint(1 if slot.type == "decimal" else 0, places)
    unit = hundred * 10**fewer
    if random.random() < _SHARE and math.ceil(first * unit) <= math.floor(last * unit):
        places = fewer
    unit = hundred * 10**places
    value = Fraction(_between(first * unit, last * unit, random), unit)
    spelt = _spelt_as(slot.type, value, places, "least")
    if slot.is_scientific and random.random() < _SHARE:
        return _with_exponent(slot, spelt, is_short=random.random() < _SHARE)
    return spelt


def _with_exponent(slot: SlotRange, spelt: str, *, is_short: bool) -> str:
    """A decimal with its point after the first digit, where it has a digit after that; a short one
    has two digits, of which zeros before the point may be left to the exponent."""
    from decimal import Decimal

    shown = f"{Decimal(spelt):.1e}" if is_short else f"{Decimal(spelt):e}"
    return shown if "." in shown and slot.holds(parse_literal(shown)) else spelt


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
