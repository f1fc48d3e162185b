"""What changes a family, and what never does."""

from __future__ import annotations

import random
from itertools import islice, product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kvg.errors import UsageError
from kvg.problem.code import code_digest, read_code
from kvg.problem.constraint import normal_constraint
from kvg.problem.family import parse_problem
from kvg.problem.literals import WHITE_SPACE

WORDS = st.lists(st.from_regex(r"[A-Za-z]{1,8}", fullmatch=True), min_size=2, max_size=8)
SPACE = st.text(sorted(WHITE_SPACE), min_size=1, max_size=4)
INTS = st.integers(-(10**30), 10**30)
NAMES = st.from_regex(r"[a-z]{3,8}", fullmatch=True).map(lambda name: f"n_{name}")
QUOTED = st.text(st.characters(exclude_characters='"\n\r', codec="utf-8"), max_size=20)


@given(WORDS, st.data())
def test_white_space_between_words_does_not_count(words: list[str], data: st.DataObject) -> None:
    spaced = "".join(word + data.draw(SPACE) for word in words)
    assert parse_problem(spaced).family == parse_problem(" ".join(words)).family


@given(INTS, INTS, INTS, INTS)
def test_slot_values_do_not_count(a: int, b: int, c: int, d: int) -> None:
    one = parse_problem(f"Is {a} under {b}?", "s0 < s1")
    other = parse_problem(f"Is {c} under {d}?", "s0 < s1")
    assert one.family == other.family
    assert [slot.value for slot in one.slots] == [a, b]


@given(QUOTED, QUOTED)
def test_a_quoted_value_is_kept_to_the_letter(a: str, b: str) -> None:
    one, other = parse_problem(f'Reverse "{a}" now'), parse_problem(f'Reverse "{b}" now')
    assert one.family == other.family
    assert (one.slots == other.slots) == (a == b)
    assert one.slots[0].value == a


@given(NAMES, NAMES)
def test_bound_names_do_not_count(a: str, b: str) -> None:
    def made(name: str) -> object:
        return normal_constraint(f"all({name} % s0 == 0 for {name} in s1)", ("int", "list[int]"))

    assert made(a) == made(b)
    assert parse_problem(f"Run\n```python\n{a} = 1\nprint({a})\n```").family == (
        parse_problem(f"Run\n```python\n{b} = 1\nprint({b})\n```").family
    )


@given(st.permutations(["s0", "s1", "len(s2)", "7", "s0 * 3"]), st.sampled_from("+*"))
def test_the_order_of_numeric_operands_does_not_count(parts: list[str], operator: str) -> None:
    types = ("int", "decimal", "str")
    plain = operator.join(["s0", "s1", "len(s2)", "7", "(s0 * 3)"])
    given_order = operator.join(f"({part})" for part in parts)
    assert normal_constraint(given_order, types) == normal_constraint(plain, types)


@given(st.permutations(["s0", "s1", "s2"]))
def test_the_order_of_joined_strings_counts(parts: list[str]) -> None:
    types = ("str", "str", "str")
    same = normal_constraint("+".join(parts), types) == normal_constraint("s0+s1+s2", types)
    assert same == (parts == ["s0", "s1", "s2"])


@given(st.sampled_from(["<", "<=", "-", "/", "//", "%", "**", ">"]))
def test_swapped_slots_are_another_constraint(operator: str) -> None:
    types = ("int", "int")
    assert normal_constraint(f"s0 {operator} s1", types) != (
        normal_constraint(f"s1 {operator} s0", types)
    )


@given(st.text())
@example("[[[1, 2], `a\n`]]{0:int}\r\r\n")
@example("\ud800")
def test_no_text_crashes(text: str) -> None:
    try:
        found = parse_problem(text)
    except UsageError:
        return
    assert found.family.digest == parse_problem(text).family.digest
    assert found.family.text != ""


@given(st.text(max_size=60))
def test_no_constraint_crashes(text: str) -> None:
    try:
        normal_constraint(text, ("int", "str"))
    except UsageError:
        return


@pytest.mark.slow
def test_distinct_structures_have_distinct_families() -> None:
    """10^5 structures, near twins among them, each with values of its own in its slots."""
    draw = random.Random(5)
    verbs = ("Sum", "sum", "Count", "Find", "Print")
    kinds = ("integers", "even integers", "odd integers", "primes", "words")
    joins = ("from", "From", "between", "up to", "upto")
    tests = ("s0 < s1", "s1 < s0", "s0 <= s1", "s0 + s1 < 9", "s0 - s1 < 9", "s1 - s0 < 9", None)
    slots = ("{}", "{}.5", "{}%", '"{}"', "[{}]", "[{}, 1.5]", "[[{}]]", "{}/7")
    ends = ("", ".", "?", " {{", " }}", " 2nd", " in 1.2.3", " !", "!", ";", " ;")
    structures = product(verbs, kinds, joins, tests, slots, slots, ends)
    made = set()
    for verb, kind, join, test, left, right, end in islice(structures, 100_000):
        first, second = (slot.format(draw.randrange(2, 10**9)) for slot in (left, right))
        text = f"{verb} the {kind} {join} {first} and {second}{end.format()}"
        made.add(parse_problem(text, test).family.digest)
    assert len(made) == 100_000


STATEMENTS = (
    "{x} = {n}",
    "{x} = {y}",
    "def {x}({y}): return {y}",
    "def {x}({y}, {z}=0): return {y} - {z}",
    "class {x}:\n  {y} = {n}\n  def {z}(self): return {n}",
    "{x} = lambda {y}: [{y}, {z}]",
    "for {x} in range({n}): {y} = {x}",
    "show([{x} for {x} in range({n})])",
    "show({x})",
    "show({x}({n}))",
    "show({x}({n}, {y}={n}))",
    "show({x}.{y})",
    "show({x}().{y}())",
    "show('{x}')",
    "show(f'{{{x}=}}')",
    "show(globals().get('{x}'))",
    "show({x}([1, 2]))",
    "import math as {x}",
    "import math\nfrom math import sqrt, {y}",
    "show(math.{x}, sqrt({n}))",
    "from math import {y} as {x}",
    "from math import *",
    "del {x}",
    "try: {x}\nexcept NameError: show(1)",
    "try: {x}()\nexcept TypeError as {y}: show(str({y}))",
    "def {x}():\n  global {y}\n  {y} = {n}\n{x}()",
    "def {x}():\n  '{y}'\nshow({x}.__doc__)",
    "match {n}:\n  case {x}: show({x})",
    "show((lambda {x}: {x} + {n})({n}))",
    "show([{y} := {n} for {x} in range(2)])",
    "show({x}(**dict(zip('ab', [{n}, 1]))))",
    "show(str({x}).split()[1:2])",
    "show([str(i).split()[1:2] for i in [{x}, {y}]])",
    "show(sorted([{x}, {y}], key=str)[0]({n}))",
    "def {x}():\n  yield {n}\n  yield {y}\nshow(list({x}()))",
    "show(str({x}()).split()[2:3])",
    "def {x}({y}):\n  def {z}(): return {y}\n  return {z}\nshow(str({x}({n})).split()[1:2])",
    "def {x}({y}): return ({z} for {z} in range({y}))\nshow(str({x}({n})).split()[2:3])",
    "show(sum({z} for {z} in range({n})))",
    "show(list(map({x}, [1, {n}])))",
    "from functools import partial as {x}",
    "show(str({x}({y})).split()[1:2])",
    "@{x}\ndef {y}({z}): return {n}",
)
NAME = st.sampled_from(["a", "b", "len", "sum", "pi", "v0", "v1"])
SHAPE = st.lists(st.tuples(st.sampled_from(STATEMENTS), st.integers(0, 3)), min_size=1, max_size=5)


def shown(source: str) -> list[str]:
    """What a program shows, and how it ends."""
    said: list[str] = []

    def show(value: object) -> None:
        is_plain = isinstance(value, int | str | float | list | None)
        said.append(repr(value) if is_plain and "0x" not in repr(value) else "a thing")

    try:
        exec(compile(source, "p", "exec"), {"show": show})  # noqa: S102  made of the lines above
    except Exception as error:  # noqa: BLE001  whatever it ends with is what it shows
        said.append(type(error).__name__)
    return said


@settings(max_examples=1500, deadline=None)
@given(SHAPE, st.data())
def test_programs_of_one_address_show_the_same(
    shape: list[tuple[str, int]], data: st.DataObject
) -> None:
    """The same statements with names of two choices: what is addressed as one computes as one."""
    sources = []
    for _ in range(2):
        lines = []
        for statement, n in shape:
            x, y, z = data.draw(st.tuples(NAME, NAME, NAME))
            lines.append(statement.format(x=x, y=y, z=z, n=n))
        sources.append("\n".join(lines))
    trees = [read_code(source) for source in sources]
    if None in trees or code_digest(trees[0]) != code_digest(trees[1]):
        return
    assert shown(sources[0]) == shown(sources[1])
