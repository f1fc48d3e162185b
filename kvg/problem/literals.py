"""Literals in a problem's text: where one stands, its type, and its value.

The grammar is that of the structural address: date, list, string, fraction, percent, decimal, int,
the first that fits at a position. Digits are ASCII.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import date
from typing import TYPE_CHECKING, Final, TypeAlias

from kvg.errors import UsageError
from kvg.frozen import frozen

if TYPE_CHECKING:
    from decimal import Decimal
    from fractions import Fraction

MAX_LIST_DEPTH: Final = 32
MAX_DIGITS: Final = 4000
"""Longer numbers have a place in a structure, but no value: Python refuses to read them."""

NUMERIC: Final = frozenset({"int", "decimal", "fraction", "percent"})

Value: TypeAlias = "int | str | Decimal | Fraction | date | tuple[Value, ...]"

WHITE_SPACE: Final = frozenset(
    "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000"
    + "".join(chr(code) for code in range(0x2000, 0x200B))
)
"""The characters with Unicode's property White_Space."""

_SIGNS: Final = "+-−"
_BEFORE_SIGN: Final = frozenset("([{,;:=<>*/^")
_CLOSING: Final = {'"': '"', "“": "”", "`": "`"}
_DIGITS: Final = frozenset("0123456789")
_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_NUMBERS: Final = (
    ("fraction", re.compile(r"[+\-−]?[0-9]+/[0-9]+")),
    ("percent", re.compile(r"[+\-−]?[0-9]+(?:\.[0-9]+)?%")),
    ("decimal", re.compile(r"[+\-−]?[0-9]+\.[0-9]+(?:[eE][+\-]?[0-9]+)?")),
    ("int", re.compile(r"[+\-−]?[0-9]+")),
)
_STARTS: Final = frozenset(_SIGNS) | _DIGITS | frozenset(_CLOSING) | {"["}


@frozen
class Literal:
    """A literal as it stood: its type, its raw text, and the elements of a list."""

    type: str
    raw: str
    items: tuple[Literal, ...] = ()

    @property
    def value(self) -> Value:
        """The typed value: int, Decimal, Fraction (a percent too: 15 % is 3/20), date, str, tuple.

        Raises ``UsageError`` for a number of more than ``MAX_DIGITS`` digits.
        """
        if self.type == "str":
            return self.raw[1:-1]
        if self.type == "date":
            return date.fromisoformat(self.raw)
        if self.type.startswith("list["):
            return tuple(item.value for item in self.items)
        return _number(self.type, self.raw.replace("−", "-"))


def _number(kind: str, text: str) -> Value:
    if len(text) > MAX_DIGITS:
        raise UsageError(f"{text[:20]}…: a number of {len(text)} characters is too long to use")
    if kind == "int":
        return int(text)
    from decimal import Decimal
    from fractions import Fraction

    if kind == "decimal":
        return Decimal(text)
    if kind == "percent":
        return Fraction(text[:-1]) / 100
    return Fraction(text)


class Scanner:
    """Finds the literal at a position of one text, in time that grows as the text does."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._no_list: set[int] = set()
        self._no_close: dict[str, tuple[int, int]] = {}

    def at(self, start: int) -> Literal | None:
        """The first kind of literal that fits at ``start``; None when none does."""
        char = self._text[start]
        if char not in _STARTS:
            return None
        if char == "[":
            return self._list(start)
        return self._simple(start)

    def _simple(self, start: int) -> Literal | None:
        char = self._text[start]
        if char in _CLOSING:
            return self._string(start)
        if char not in _DIGITS and char not in _SIGNS:
            return None
        return self._date(start) or self._number(start)

    def _string(self, start: int) -> Literal | None:
        text, close = self._text, _CLOSING[self._text[start]]
        first, last = self._no_close.get(close, (0, 0))
        if first <= start < last:
            return None
        line_end = text.find("\n", start)
        stop = len(text) if line_end < 0 else line_end
        end = text.find(close, start + 1, stop)
        if end < 0:
            self._no_close[close] = (start, stop)
            return None
        return Literal("str", text[start : end + 1])

    def _date(self, start: int) -> Literal | None:
        found = _DATE.match(self._text, start)
        if found is None or self._touches_date(start - 1) or self._touches_date(found.end()):
            return None
        try:
            date(int(found[1]), int(found[2]), int(found[3]))
        except ValueError:
            return None
        return Literal("date", found[0])

    def _touches_date(self, at: int) -> bool:
        char = self._char(at)
        return char in ("-", ".") or (char != "" and unicodedata.category(char)[0] in "LN")

    def _number(self, start: int) -> Literal | None:
        before = self._char(start - 1)
        if self._text[start] in _SIGNS:
            if before and before not in WHITE_SPACE and before not in _BEFORE_SIGN:
                return None
        elif _is_wordlike(before) or (before == "." and self._char(start - 2) in _DIGITS):
            return None
        for kind, pattern in _NUMBERS:
            found = pattern.match(self._text, start)
            if found is not None and self._is_whole(kind, found):
                return Literal(kind, found[0])
        return None

    def _is_whole(self, kind: str, found: re.Match[str]) -> bool:
        """Whether the number ends where the match does, and is one of its kind."""
        after = self._char(found.end())
        if _is_wordlike(after):
            return False
        if kind != "percent" and after == "." and self._char(found.end() + 1) in _DIGITS:
            return False
        if kind == "fraction":
            return after != "/" and bool(found[0].partition("/")[2].strip("0"))
        return True

    def _char(self, at: int) -> str:
        return self._text[at] if 0 <= at < len(self._text) else ""

    def _list(self, start: int) -> Literal | None:
        """A list, without recursion. Starts that came to nothing are kept, so as to fail once."""
        if start in self._no_list:
            return None
        open_lists: list[tuple[int, list[Literal]]] = []
        at, wants_item = start, True
        while True:
            at = self._skip_space(at)
            char = self._char(at)
            if wants_item and char == "[" and at not in self._no_list:
                open_lists.append((at, []))
                at, wants_item = at + 1, True
                if self._char(self._skip_space(at)) == "]":
                    wants_item = False
                continue
            if wants_item:
                item = self._simple(at) if char in _STARTS and char != "[" else None
                if item is None:
                    self._no_list.update(began for began, _ in open_lists)
                    return None
                open_lists[-1][1].append(item)
                at, wants_item = at + len(item.raw), False
                continue
            if char == "," and open_lists[-1][1]:
                at, wants_item = at + 1, True
                continue
            if char != "]":
                self._no_list.update(began for began, _ in open_lists)
                return None
            began, items = open_lists.pop()
            at += 1
            made = self._make(began, at, items, len(open_lists))
            if not open_lists:
                return made
            open_lists[-1][1].append(made)

    def _make(self, began: int, end: int, items: list[Literal], depth: int) -> Literal:
        if depth >= MAX_LIST_DEPTH:
            raise UsageError(f"a list nested more than {MAX_LIST_DEPTH} deep is no literal")
        kinds = "|".join(sorted({item.type for item in items}))
        return Literal(f"list[{kinds}]", self._text[began:end], tuple(items))

    def _skip_space(self, at: int) -> int:
        while self._char(at) in WHITE_SPACE:
            at += 1
        return at


def _is_wordlike(char: str) -> bool:
    """Whether a number can't stand beside ``char``: a letter, digit, mark or ``_``."""
    return char == "_" or (char != "" and unicodedata.category(char)[0] in "LMN")


def parse_literal(text: str) -> Literal:
    """``text`` as one literal. Raises ``UsageError`` when it is not exactly one."""
    found = Scanner(text).at(0) if text else None
    if found is None or len(found.raw) != len(text):
        raise UsageError(f"{text[:40]!r}: not a literal")
    return found
