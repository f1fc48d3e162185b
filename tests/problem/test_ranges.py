"""Ranges of slots, and the literals drawn from them."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvg.digest import sha256
from kvg.errors import Corrupt, UsageError
from kvg.problem.literals import parse_literal
from kvg.problem.method import Method, parse_method
from kvg.problem.ranges import (
    End,
    SlotRange,
    draw,
    element_types,
    parse_range,
    range_value,
    read_ranges,
)
from kvg.problem.text import canonical_text

INT = SlotRange("int", None, "-3", "3")
RANGES = (
    *map(SlotRange, ("int", "decimal", "fraction", "percent", "date", "str", "list[int]")),
    *map(SlotRange, ("list[]", "list[decimal|int]", "list[list[int]|str]", "list[list[]]")),
    INT,
    SlotRange("decimal", "x", "-1.555", "-1.5"),
    SlotRange("fraction", None, "-7/3", "0"),
    SlotRange("percent", None, "-5%", "120%"),
    SlotRange("date", None, "2024-02-28", "2024-03-01"),
    SlotRange("str", None, "0", "0"),
    SlotRange("list[int]", None, "2", "2", INT),
    SlotRange("list[list[int]]", None, "1", "4", SlotRange("list[int]", None, "3", "3", INT)),
    SlotRange("int", None, "1000", None),
    SlotRange("int", None, None, "-1000"),
)


@pytest.mark.parametrize("slot", RANGES, ids=lambda slot: f"{slot.type} {slot.least} {slot.most}")
@pytest.mark.parametrize("end", [None, "least", "most"])
def test_what_is_drawn_is_in_the_range_and_of_the_type(slot: SlotRange, end: End | None) -> None:
    random = Random(1)
    for _ in range(60):
        literal = draw(slot, random, end=end)
        assert literal.type == slot.type and slot.holds(literal)
        assert canonical_text(f"at {literal.raw} now").types == (slot.type,)


@pytest.mark.parametrize("slot", RANGES, ids=lambda slot: f"{slot.type} {slot.least} {slot.most}")
def test_a_range_is_kept_in_a_method(slot: SlotRange) -> None:
    assert parse_range(range_value(slot), what="slot") == slot
    method = Method(sha256(b"f"), sha256(b"p"), sha256(b"c"), (slot,))
    assert parse_method(method.document, what="method") == method
    with pytest.raises(Corrupt):
        parse_method(method.document + b" ", what="method")
    with pytest.raises(Corrupt):
        parse_method(method.document.replace(b'"checker"', b'"chequer"'), what="method")


def test_ends_are_drawn() -> None:
    random = Random(2)
    assert [draw(INT, random, end=end).raw for end in ("least", "most")] == ["-3", "3"]


@pytest.mark.parametrize(
    ("kind", "bounds", "ends"),
    [
        ("decimal", ("0", "10"), ("0.0", "10.0")),
        ("decimal", ("-3/8", "15%"), ("-0.375", "0.15")),
        ("decimal", ("1/3", "2/3"), ("0.34", "0.66")),
        ("int", ("0.5", "7/2"), ("1", "3")),
        ("int", ("-3.5", "-50%"), ("-3", "-1")),
        ("fraction", ("0", "1.5"), ("0/1", "3/2")),
        ("percent", ("0", "1"), ("0%", "100%")),
        ("percent", ("0.125", "1/3"), ("12.5%", "33.33%")),
    ],
)
def test_ends_of_another_spelling_are_drawn_too(
    kind: str, bounds: tuple[str, str], ends: tuple[str, str]
) -> None:
    """As a person writes them: the bounds of a decimal as JSON integers."""
    slot = SlotRange(kind, None, *bounds)
    drawn = tuple(draw(slot, Random(3), end=end) for end in ("least", "most"))
    assert tuple(literal.raw for literal in drawn) == ends
    assert all(slot.holds(literal) for literal in drawn)


def test_a_range_without_a_value_of_its_type() -> None:
    for end in (None, "least", "most"):
        with pytest.raises(UsageError, match="no value"):
            draw(SlotRange("int", None, "0.2", "0.8"), Random(1), end=end)


@pytest.mark.parametrize(
    ("raw", "is_in"), [("3", True), ("-3", True), ("4", False), ("3.0", False), ('"3"', False)]
)
def test_bounds(raw: str, is_in: bool) -> None:
    assert INT.holds(parse_literal(raw)) is is_in


@pytest.mark.parametrize(
    "given_range",
    [
        ("int", "5", "4"),
        ("int", "a", None),
        ("date", "3", None),
        ("str", "-1", None),
        ("str", "1.5", None),
        ("list[int]", "999999", None),
    ],
)
def test_ranges_that_are_none(given_range: tuple[str, str, str | None]) -> None:
    kind, least, most = given_range
    with pytest.raises(UsageError):
        SlotRange(kind, None, least, most)
    with pytest.raises(UsageError):
        SlotRange("list[int]", None, None, None, SlotRange("str"))


@given(st.lists(st.sampled_from(["int", "str", "list[int|str]", "list[list[]]"]), unique=True))
def test_element_types(kinds: list[str]) -> None:
    assert element_types(f"list[{'|'.join(sorted(kinds))}]") == tuple(sorted(kinds))


def test_what_a_person_writes() -> None:
    text = b'[{"name": "a", "least": 1, "most": "9"}, {"items": {"least": 0}}]'
    first, second = read_ranges(text, ("int", "list[int]"), what="r.json")
    assert first == SlotRange("int", "a", "1", "9")
    assert second.items == SlotRange("int", None, "0")


@pytest.mark.parametrize(
    "text",
    ['[{}, {"least": 5, "most": 1}]', '[{}, {"least": "x"}]', '[{}, {"most": "2024-01-01"}]'],
)
def test_a_wrong_range_is_named_by_its_slot(text: str) -> None:
    with pytest.raises(UsageError, match=r"ranges\.json: slot 1: "):
        read_ranges(text.encode(), ("int", "int"), what="ranges.json")


def test_a_side_that_is_open_is_at_the_usual_limit() -> None:
    """Of whatever type: nothing was proved of what is never drawn."""
    beyond = {
        "int": ("0", "61", "-5"),
        "decimal": ("0.4", "60.01", "12.505", "1.0e-9"),
        "percent": ("0%", "100%", "12.5%"),
        "fraction": ("1/10", "19/4", "1/31"),
        "date": ("1989-12-31", "2061-01-01"),
        "str": ('""', '"abcdefghijklm"', '"a\u2603"', "“it's”"),
        "list[int]": ("[1, 2, 3, 4, 5, 6, 7, 8]", "[61]", "[1, 0]"),
        "list[list[int]]": ("[[1], [2, 70]]",),
        "list[decimal|int]": ("[1, 60.5]", "[61, 1.5]"),
    }
    for kind, raws in beyond.items():
        slot = SlotRange(kind)
        for raw in raws:
            literal = parse_literal(raw)
            assert literal.type == kind and not slot.holds(literal), raw
            assert not slot.closed().holds(literal), raw


@pytest.mark.parametrize("slot", RANGES, ids=lambda slot: f"{slot.type} {slot.least} {slot.most}")
def test_a_closed_range_has_no_open_side_and_draws_the_same(slot: SlotRange) -> None:
    if slot.least == "1000" or slot.most == "-1000":
        with pytest.raises(UsageError, match="beyond the usual other end"):
            slot.closed()
        return
    closed = slot.closed()
    assert None not in (closed.least, closed.most) and closed.closed() == closed
    assert closed.is_open == ("|" in slot.type)  # several types share no range
    for end in (None, "least", "most"):
        drawn = [draw(each, Random(4), end=end) for each in (slot, closed)]  # type: ignore[arg-type]
        assert drawn[0] == drawn[1] and closed.holds(drawn[0]) and slot.holds(drawn[0])


@pytest.mark.parametrize(
    "raw",
    ["7", "-5", "1000000", "12.505", "-1.5e3", "12.5%", "1/64", "1700-01-01", '"\u2603 a"', "[99]"],
)
def test_an_open_side_is_wide_enough_for_its_own_value(raw: str) -> None:
    own = parse_literal(raw)
    closed = SlotRange(own.type).closed((own,))
    assert closed.holds(own) and not closed.is_open
    assert all(closed.holds(draw(closed, Random(n))) for n in range(20))
    given_both = SlotRange("int", None, "1", "9").closed((parse_literal("10"),))
    assert not given_both.holds(parse_literal("10"))


def test_places_are_those_of_the_bounds() -> None:
    for bounds, raw, is_in in (
        (("0", "9"), "1.25", True),
        (("0", "9"), "1.250", False),
        (("0", "9"), "1.500000", False),
        (("0", "9.000"), "1.250", True),
        (("0.0", "9000.0"), "1.5e3", False),
        (("-5.0", "5.0"), "-0.0", False),
        (("-5.0", "5.0"), "−0.00", False),
        (("-5.0", "5.0"), "0.0", True),
        (("-5.0", "5.0"), "-0.5", True),
        (("0.0", "9.0e3"), "1.5e3", True),
        (("0.0", "9.0e3"), "1500.5", True),
        (("0", "9"), "1.255", False),
        (("0", "9.000"), "1.255", True),
        (("0", "9.000"), "1.2555", False),
        (("0", "1/8"), "0.125", True),
    ):
        assert SlotRange("decimal", None, *bounds).holds(parse_literal(raw)) is is_in, (bounds, raw)


@pytest.mark.parametrize(
    "raw", ["0045", "+45", "-007", "00", "01/2", "1/02", "007.5", "05%", "+1.5"]
)
def test_a_number_that_is_written_as_none_is_drawn_is_outside(raw: str) -> None:
    literal = parse_literal(raw)
    slot = SlotRange(literal.type, None, "-99", "99")
    assert "leading zero" in (slot.outside(literal) or "")


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("6/8", "lowest terms"),
        ("-2/4", "lowest terms"),
        ("0/5", "lowest terms"),
        ("5.0%", "zero at its end"),
        ("12.50%", "zero at its end"),
        ("-0", "zero with a sign"),
        ("−0%", "zero with a sign"),
        ("[1/2, 2/4]", "lowest terms"),
    ],
)
def test_what_no_program_is_given_as_it_stands_is_outside(raw: str, why: str) -> None:
    literal = parse_literal(raw)
    items = SlotRange("fraction", None, "-99", "99") if literal.items else None
    low, high = ("0", "9") if literal.items else ("-99", "99")
    assert why in (SlotRange(literal.type, None, low, high, items).outside(literal) or "")


@pytest.mark.parametrize(
    "raw", ["45", "-7", "−7", "0", "1/2", "0.05", "-0.5", "7.0", "5%", "20%", "0/1"]
)
def test_a_number_that_is_written_as_others_are_is_inside(raw: str) -> None:
    literal = parse_literal(raw)
    assert SlotRange(literal.type, None, "-99", "99").outside(literal) is None


def test_decimals_are_drawn_as_they_may_be_written() -> None:
    """What a program sees of one is its places and its exponent, too."""
    for high, is_scientific in (("60.000", False), ("6.0e4", True)):
        slot = SlotRange("decimal", None, "0.5", high)
        drawn = [draw(slot, Random(n)).raw for n in range(200)]
        assert all(slot.holds(parse_literal(raw)) for raw in drawn)
        assert any("e" in raw for raw in drawn) == is_scientific
        assert any("E" in str(parse_literal(raw).value) for raw in drawn) == is_scientific
        places = {len(raw.partition(".")[2]) for raw in drawn if "e" not in raw}
        assert places == set(range(1, slot.fineness() + 1))
        assert any(raw.endswith("0") for raw in drawn)
    assert {draw(SlotRange("percent"), Random(n)).raw.find(".") for n in range(50)} == {-1}


def test_letters() -> None:
    (slot,) = read_ranges(b'[{"letters": "ab ", "least": 0, "most": 3}]', ("str",), what="r")
    assert slot.holds(parse_literal('"a b"')) and not slot.holds(parse_literal('"abc"'))
    assert set(draw(slot, Random(1), end="most").raw) <= set('"ab ')
    for wrong in (b'[{"letters": ""}]', b'[{"letters": "a\\""}]', b'[{"letters": 3}]'):
        with pytest.raises(UsageError, match="letters"):
            read_ranges(wrong, ("str",), what="r")
    with pytest.raises(UsageError, match="letters are of a string"):
        read_ranges(b'[{"letters": "a"}]', ("int",), what="r")


def test_a_number_of_a_size_that_nobody_can_hold() -> None:
    with pytest.raises(UsageError, match="too long to use"):
        SlotRange("decimal", None, "1.0e0").holds(parse_literal("1.0e999999999"))


@pytest.mark.parametrize("kind", ["float", "list[float]", "list[", "list[" * 99 + "int" + "]" * 99])
def test_types_that_are_none(kind: str) -> None:
    with pytest.raises(UsageError, match="no type of a slot"):
        SlotRange(kind)


@pytest.mark.parametrize("names", ['"a","a"', '"import","b"', '"","b"', '"a b","c"'])
def test_names_of_slots_are_names_of_their_own(names: str) -> None:
    one, two = names.split(",")
    text = f'[{{"name": {one}}}, {{"name": {two}}}]'.encode()
    with pytest.raises(UsageError, match="not a name of its own"):
        read_ranges(text, ("int", "int"), what="r.json")


@pytest.mark.parametrize(
    ("slot", "parts"),
    [
        (INT, 1),
        (SlotRange("str", None, "0", "12"), 12),
        (SlotRange("list[]"), 0),
        (SlotRange("list[int]", None, "2", "2", INT), 2),
        (
            SlotRange("list[list[str]]", None, "1", "4", SlotRange("list[str]", None, "3", "3")),
            4 * 3 * 12,
        ),
        (
            SlotRange(
                "list[list[int]]", None, "1", "10000", SlotRange("list[int]", None, "1", "10000")
            ),
            10**8,
        ),
    ],
)
def test_of_how_much_a_value_may_be_made(slot: SlotRange, parts: int) -> None:
    assert slot.most_parts() == parts
