"""Constraints in normal form."""

from __future__ import annotations

import pytest

from kvg.errors import UsageError
from kvg.problem.constraint import normal_constraint

TYPES = ("int", "int", "str", "list[int]")


def normal(text: str, *names: str) -> object:
    return normal_constraint(text, TYPES, names)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("s0 and (s1 and s2)", "(s2 and s0) and s1"),
        ("s0 if not not s1 else s2", "s0 if s1 else s2"),
        ("s0 * s1 + 1", "1 + s1 * s0"),
        ("s0 > s1 >= 2", "2 <= s1 and s1 < s0"),
        ("+s0 == 1", "1 == s0"),
        ("s0 in {1, 2, 1}", "s0 in {2, 1}"),
        ("f(1, b=2, a=3)", "f(1, a=3, b=2)"),
        ("sum(x * y for x in s3 for y in s3)", "sum(a * b for a in s3 for b in s3)"),
        ("[x for x in s3 if x if x < 3]", "[y for y in s3 if y < 3 if y]"),
        ("(lambda a, b: a - b)(s0, s1)", "(lambda x, y: x - y)(s0, s1)"),
        ("sum(len(s2) + len(s3) for s0 in s3)", "sum(len(s3) + len(s2) for i in s3)"),
        ("not (not (s0 == s1))", "s1 == s0"),
        ("len(s2) + abs(s0) + 1.5", "1.5 + (abs(s0) + len(s2))"),
    ],
)
def test_the_same(a: str, b: str) -> None:
    assert normal(a) == normal(b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("s0 < s1", "s1 < s0"),
        ("s0 - s1 == 1", "s1 - s0 == 1"),
        ("s2 + s3", "s3 + s2"),
        ("s2 + 'a'", "'a' + s2"),
        ("x + 1", "1 + x"),
        ("(s0 and s1) == 1", "(s1 and s0) == 1"),
        ("f(s0 or s1)", "f(s1 or s0)"),
        ("(not not s0) == s1", "s0 == s1"),
        ("sum(x - y for x in s3 for y in s3)", "sum(y - x for x in s3 for y in s3)"),
        ("[s0, s1]", "[s1, s0]"),
        ("s0 == 1", "s0 == 1.0"),
        ("s0 == 1", "s0 == True"),
        ("s0 == '1'", "s0 == 1"),
        ("len == 1", "s0 == 1"),
        ("+x == 1", "x == 1"),
        ("f(s0)(s1)", "f(s0, s1)"),
        ("s0 in [1, 2]", "s0 in [2, 1]"),
        ("all(x for x in s3)", "all([x for x in s3])"),
    ],
)
def test_not_the_same(a: str, b: str) -> None:
    assert normal(a) != normal(b)


def test_declared_names() -> None:
    assert normal("a <= b", "a", "b") == normal("s0 <= s1") == ["<=", ["slot", 0], ["slot", 1]]
    assert normal("any(a == 1 for a in s3)", "a") == normal("any(i == 1 for i in s3)")


NO_NAMES = [("if",), ("None",), ("__debug__",), ("\ufb01",), ("s1",), ("a", "a"), ("1",)]


@pytest.mark.parametrize("names", [*NO_NAMES, ("a", "b", "c", "d", "e")])
def test_names_that_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        normal("s0", *names)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("s2[1:2]", "Slice"),
        ("{1: 2}", "Dict"),
        ("f'{s0}'", "JoinedStr"),
        ("(x := 1)", "NamedExpr"),
        ("f(*s3)", "Starred"),
        ("f(**x)", "keyword"),
        ("{x: 1 for x in s3}", "DictComp"),
        ("~s0", "Invert"),
        ("[x for [x] in s3]", "List"),
        ("lambda x=1: x", "lambda"),
        ("1j", "complex"),
        ("b'a'", "bytes"),
        ("...", "ellipsis"),
        ("[x async for x in s3]", "async"),
        ("s0 <", "not a Python expression"),
        ("s0 = 1", "not a Python expression"),
        ("", "not a Python expression"),
        ("\ud800", "not a Python expression"),
        ("-" * 500 + "1", "too deeply"),
        ("0x" + "f" * 5000, "too long"),
        ("(lambda a, b: a - b)(a=s0, b=s1) > 0", "keyword arguments of what has no name"),
        ("[f(a=1) for f in s3]", "keyword arguments of what has no name"),
        ("(f)(1)(a=s0)", "keyword arguments of what has no name"),
        ("(lambda a, b: eval('a'))(s0, s1)", "eval is not allowed"),
        ("[locals() for x in s3]", "locals is not allowed"),
        ("__import__('os')", "__import__ is not allowed"),
    ],
)
def test_refused_by_name(text: str, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        normal(text)


@pytest.mark.parametrize("text", ["pow(2, 3) < s1", "s0 < [pow(n) for n in s1]", "s0(1)"])
def test_a_slot_that_is_called(text: str) -> None:
    """It is no function, whatever is called so elsewhere."""
    with pytest.raises(UsageError, match=r"constraint: (pow|s0) is a slot, not a function"):
        normal(text, "pow")


def test_a_slot_may_have_the_name_of_a_function_that_is_not_called() -> None:
    assert normal("bool < 3 and abs(-1) == 1", "bool") == normal("s0 < 3 and abs(-1) == 1")
    assert normal("all(sum > 1 for sum in s1)", "sum") == normal("all(x > 1 for x in s1)")
