"""Canonical text and its literals."""

from __future__ import annotations

import ast
import json
import sys
from datetime import date
from decimal import Decimal
from fractions import Fraction

import pytest

from kvg.errors import UsageError
from kvg.problem.code import code_tree
from kvg.problem.literals import parse_literal
from kvg.problem.text import canonical_text, has_code, indented_line, unread_line

BLOCK = "Run:\n```python\n{}\n```\nnow"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("On 2024-02-29, 5 days", "On {0:date}, {1:int} days"),
        ("On 2024-02-29. Then", "On {0:int}-{1:int}-{2:int}. Then"),
        ("1/2/3", "{0:int}/{1:fraction}"),
        ("3/4.5 and 3/-4", "{0:int}/{1:decimal} and {2:int}/{3:int}"),
        ("12.5% of 15%x", "{0:percent} of {1:int}%x"),
        ("3.5e and 5² and 5́", "3.5e and 5² and 5́"),
        ("{0:int}", "{{{0:int}:int}}"),
        ("{code:ab}", "{{code:ab}}"),
        ("[1, [2, x]] [3", "[{0:int}, [{1:int}, x]] [{2:int}"),
        ("[1, 2,] [,1]", "[{0:int}, {1:int},] [,{2:int}]"),
        ('["a, b]", 1/2, 2024-01-01]', "{0:list[date|fraction|str]}"),
        ('say "a\nb" now', 'say "a b" now'),
        ("a\u2003 \u3000b\x0bc", "a b c"),
        ("−5 − 5 x−5", "{0:int} − {1:int} x−{2:int}"),
        ("f(-3)^-2", "f({0:int})^{1:int}"),
        ("end.5 and 1. and a_1", "end.{0:int} and {1:int}. and a_1"),
    ],
)
def test_wording(given: str, wanted: str) -> None:
    assert canonical_text(given).text == wanted


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("-5", -5),
        ("−5", -5),
        ("007", 7),
        ("12.50", Decimal("12.50")),
        ("3/4", Fraction(3, 4)),
        ("15%", Fraction(3, 20)),
        ("2024-02-29", date(2024, 2, 29)),
        ("“a b”", "a b"),
        ("[1, [2.5, `x`]]", (1, (Decimal("2.5"), "x"))),
    ],
)
def test_values(raw: str, value: object) -> None:
    assert parse_literal(raw).value == value


def test_a_number_too_long_has_a_place_but_no_value() -> None:
    found = canonical_text("9" * 10_000 + " sheep")
    assert found.text == "{0:int} sheep"
    with pytest.raises(UsageError, match="too long"):
        _ = found.slots[0].value


@pytest.mark.parametrize(
    "text", ["", " \n\t", "a\ud800b", "x" * ((1 << 20) + 1), "[" * 40 + "]" * 40]
)
def test_refused(text: str) -> None:
    with pytest.raises(UsageError):
        canonical_text(text)


MANY = "```python\nxy = 1\n```\nab\n"


@pytest.mark.parametrize(
    "hostile", ["[", '"', "“", "[1,", "```python\n", "1/", "[[]", "-", "{", MANY]
)
def test_time_grows_as_the_text_does(hostile: str) -> None:
    canonical_text(hostile * (200_000 // len(hostile)))  # quadratic work would take minutes


def digest_of(code: str) -> str:
    return canonical_text(BLOCK.format(code)).text


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("x = 1 # one", "total  =  1"),
        ("def f(a, b=2):\n  'doc'\n  return a", "def g(x, y=2):\n    return x"),
        ("[i for i in range(3)]", "[k for k in range(3)]"),
        ("import math as o\no.x", "import math as p\np.x"),
        (
            "def f(n):\n  return sum(i for i in range(n))\nprint(max(map(f, [1, 2]), key=abs))",
            "def g(n):\n  return sum(k for k in range(n))\nprint(max(map(g, [1, 2]), key=abs))",
        ),
        (
            "def a():\n  yield 1\nfor x in a(): print('{}'.format(x))\nprint([*a()], list(a()))",
            "def b():\n  yield 1\nfor y in b(): print('{}'.format(y))\nprint([*b()], list(b()))",
        ),
        *(
            (code.format("gain"), code.format("loss"))
            for code in (
                "def {0}(xs):\n  xs.sort(key=lambda p: p[1])\nprint({0}([(1, 2)]))",
                "from itertools import groupby\ndef {0}(x): return x\ngroupby([1], key={0})",
                "from itertools import islice\ndef {0}():\n  yield 1\nlist(islice({0}(), 5))",
                "class A:\n  def __init__(self, {0}): self.x = {0}\nclass B(A):\n"
                "  def __init__(self, {0}): super().__init__({0})\nprint(B(1).x)",
                "from operator import mul\n{0} = 1\nprint(mul({0}, 2))",
                "from __future__ import annotations\n{0} = 1\nprint({0})",
                "from dataclasses import dataclass\n@dataclass\nclass P: x: int\n{0} = 1",
                "import math\ndef {0}(n): return math.prod(i for i in range(n))\nprint({0}(3))",
                "def {0}(n): return n in (i for i in range(3))\nprint({0}(1))",
            )
        ),
        (
            "from functools import lru_cache, reduce\n@lru_cache(None)\ndef f(n): return n\nf(2)",
            "from functools import lru_cache, reduce\n@lru_cache(None)\ndef g(m): return m\ng(2)",
        ),
        ("def f():\n  global x\n  x = 1", "def f():\n  global y\n  y = 1"),
    ],
)
def test_code_that_is_the_same(a: str, b: str) -> None:
    assert digest_of(a) == digest_of(b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("x = 1", "x = 2"),
        ("x = 1", "x = 1.0"),
        ("x = 1", "x = True"),
        ("x = ''", "x = None"),
        ("x = v0", "x = x"),
        ("import os", "import sys"),
        ("import os\nos.x", "import sys\nsys.x"),
        ("a + b", "b + a"),
        ("def f(a, b): return a\nf(a=1, b=2)", "def f(b, a): return b\nf(a=1, b=2)"),
        ("key = 1\nsorted(q, key=key)", "reverse = 1\nsorted(q, reverse=reverse)"),
        ("match q:\n  case P(a=1): pass", "match q:\n  case P(b=1): pass"),
        ("x = 'v0'", "x = 'v1'"),
    ],
)
def test_code_that_is_not(a: str, b: str) -> None:
    assert digest_of(a) != digest_of(b)


TWINS = {
    "methods": "class A:\n  def {0}(self): return 1\n  def {1}(self): return 2\nprint(A().gain())",
    "class variables": "class A: {0} = 1; {1} = 2\nprint(A.gain)",
    "fields": "from dataclasses import dataclass\n@dataclass\nclass A:\n  {0}: int\n  {1}: int\n"
    "print(A(1, 2))",
    "classes": "class {0}: pass\nclass {1}: pass\nprint({0}())",
    "globals": "{0} = 1\n{1} = 2\nprint(globals()['gain'])",
    "text that is run": "{0} = 1\n{1} = 2\nprint(eval('ga' + 'in'))",
    "text of a format": "{0} = 1\n{1} = 2\nprint(f'{{{0}=}}')",
    "a function's name": "def {0}(): pass\ndef {1}(): pass\nprint({0}.__name__)",
    "an error's text": "def f({0}, {1}): pass\ntry: f(1)\nexcept TypeError as e: print(e)",
    "an import of all": "from m import *\ndef f({0}): return {0}\nprint(gain)",
    "a module that looks": "import inspect\ndef f({0}, {1}): pass\nprint(inspect.signature(f))",
    "names of another scope": "a = 5\ndef f():\n  global {0}\n  a = 1\nf()\nprint(a, {1})",
    "a private name": "_C__gain = 1\n__{0} = 2\n__{1} = 3\nclass C:\n"
    "  def f(self): return __gain\nprint(C().f())",
    "a name in a format": "def {0}(): pass\ndef {1}(): pass\nprint('{{0.__name__}}'.format({0}))",
    "the code of what runs": "def {0}(): yield\ndef {1}(): yield\nprint({0}().gi_code)",
    "keywords of a format": "def f({0}, {1}): print({0})\n"
    "f(**{{f'{{w}}in': 1 for w in ['ga']}}, loss=2)",
    "keywords that are zipped": "def f({0}, {1}): print({0})\n"
    "f(**dict(zip(('ga' + 'in', 'lo' + 'ss'), '12')))",
    "a base with keywords": "class A:\n  def __init_subclass__(c, {0}, {1}): print({0})\n"
    "d = dict(zip(('ga' + 'in', 'lo' + 'ss'), '12'))\nclass B(A, **d): pass",
    "a function that is shown": "def {0}(): pass\ndef {1}(): pass\nprint(str({0})[:14])",
    "functions in their order": "def {0}(): pass\ndef {1}(): pass\n"
    "print(sorted([{0}, {1}], key=str))",
    "a function by another name": "def {0}(): pass\ndef {1}(): pass\nx = {0}\nprint(f'{{x}}'[:14])",
    "a function in a function": "def {0}(): return lambda: 1\ndef {1}(): return 1\n"
    "print(str({0}())[:14])",
    "a generator": "def {0}(): yield 1\ndef {1}(): return 1\nprint(str({0}())[:24])",
    "a generator of a function": "def {0}(): return (i for i in '1')\ndef {1}(): return 1\n"
    "print(str({0}())[:24])",
    "a class in a function": "def {0}():\n  class A: pass\n  return A()\ndef {1}(): return 1\n"
    "print(str({0}())[:24])",
    "a decorator that shows": "def show(f): print(str(f)[:14])\n@show\ndef {0}(): pass\n"
    "x = {1} = 1",
    "a decorator that is made": "from functools import partial\n@partial(print)\ndef {0}(): pass\n"
    "{1} = 1",
    "what is called like Python's own": "def {0}(): pass\ndef {1}(): pass\n"
    "def map(f): print(str(f)[:14])\nmap({0})",
    "what is imported as Python's own": "from functools import partial as map\ndef {0}(): pass\n"
    "def {1}(): pass\nprint(str(map({0}))[:50])",
    "a thread": "import threading\ndef {0}(): print(threading.current_thread().name)\n{1} = 1\n"
    "t = threading.Thread(target={0})\nt.start()",
    "hints of types": "from typing import get_type_hints\ndef f({0}: int, {1}: str): pass\n"
    "print(get_type_hints(f))",
    "a name that a format is given": "def f({0}): yield\n{1} = 1\n"
    "print(('{{0.gi' + '_code.co_var' + 'names}}').format(f(1)))",
    "a name that a format has": "def f({0}): yield\n{1} = 1\nprint('{{0.gi_code}}'.format(f(1)))",
    "a way from module to module": "import random\ndef f({0}, {1}): pass\n"
    "print(random._os.sys._getframe(0).f_globals)",
    "such a way that is imported": "from random import _os as o\ndef f({0}, {1}): pass\no.x()",
    "the file that it is": "def f({0}, {1}): pass\nprint(open('program.py').read())",
    "the end of a block": "class C:\n  def __enter__(self): pass\n  def __exit__(self, a, b, c):\n"
    "    print(b)\n    return True\ndef f({0}): pass\n{1} = 1\nwith C(): f()",
    "what runs side by side": "async def {0}(): pass\ndef {1}(): pass\nprint(str({0}())[:30])",
    "key as a keyword of one's own": "def {0}(): pass\ndef {1}(): pass\n"
    "print(sorted([dict(key={0}), dict(key={1})], key=str))",
    "what is called is the outcome of a call": "def {0}(): pass\ndef {1}(): pass\n"
    "print(next(iter([str]))({0})[:14])",
    "a method of one's own": "h = lambda: 0\nh.list = str\ndef {0}(): pass\ndef {1}(): pass\n"
    "print(h.list({0})[:14])",
    "a field that is called": "from collections import namedtuple\ndef {0}(): pass\n{1} = 1\n"
    "print(namedtuple('P', 'map')(str).map({0})[:14])",
    "a generator that a map makes": "def {0}(x): yield x\n{1} = 1\n"
    "print(str(next(map({0}, [1])))[:24])",
    "a generator that is a key": "def {0}(x): yield x\n{1} = 1\nprint(str(sorted([1], key={0})))",
    "a class made of data": "f = lambda {0}, {1}: 0\nC = type('C', (), {{'__ex' + 'it__': print}})",
    "a class by another name": "t = type\nf = lambda {0}, {1}: 0\nt('C', (), {{}})",
    "attributes that are copied by name": "from functools import update_wrapper\n"
    "def f({0}: int, {1}: int): pass\nprint(update_wrapper(print, f, ['__anno' + 'tations__']))",
    "what a module keeps to itself": "import copy\ndef f({0}, {1}): pass\n"
    "print(copy._reconstruct(None, None, f, ()))",
    "a module as a value": "import copy\ndef f({0}, {1}): pass\nm = copy\nprint(m._reconstruct)",
    "a class that a library calls": "import json\nclass E(json.JSONEncoder):\n"
    "  def default(self, {0}): return {0}\n{1} = 1\nprint(json.dumps({1}, cls=E))",
    "a class of a library by a plain name": "from decimal import Context as object\n"
    "class C(object):\n  def f(self, {0}, {1}): pass",
    "attributes that are set": "class A: pass\nx = A()\nx.gain = 1\n{0} = 2\nprint(x.gain, {1})",
}


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs the syntax of Python 3.12")
@pytest.mark.parametrize(
    "code", ["type {0} = int\n{1} = 1\nprint({0})", "def f[{0}](): return {0}\n{1} = 1\nprint(f())"]
)
def test_names_of_types_count(code: str) -> None:
    assert digest_of(code.format("gain", "loss")) != digest_of(code.format("loss", "gain"))


@pytest.mark.parametrize("code", TWINS.values(), ids=TWINS)
def test_names_that_something_sees_count(code: str) -> None:
    assert digest_of(code.format("gain", "loss")) != digest_of(code.format("loss", "gain"))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("def f(len): return len\nprint(len('ab'))", "def f(sum): return sum\nprint(sum('ab'))"),
        ("def f(max): return max\nprint(max(1, 2))", "def f(min): return min\nprint(min(1, 2))"),
        ("'one'", "'two'"),
        ("from math import sqrt\nprint(v0(9))", "from math import sqrt\nprint(sqrt(9))"),
        (
            "a = 5\ndef f():\n  global v0\n  a = 1\nf()\nprint(a)",
            "a = 5\ndef f():\n  global a\n  a = 1\nf()\nprint(a)",
        ),
        (
            "_C__x = 1\n__x = 2\nclass C:\n  def f(self): return __x\nprint(C().f())",
            "_C__x = 1\ny = 2\nclass C:\n  def f(self): return y\nprint(C().f())",
        ),
        ("def f():\n  'one'\nprint(f.__doc__)", "def f():\n  'two'\nprint(f.__doc__)"),
    ],
)
def test_what_stands_for_something_without_being_bound(a: str, b: str) -> None:
    assert digest_of(a) != digest_of(b)


def test_half_of_a_surrogate_pair_is_told_as_such() -> None:
    with pytest.raises(UsageError, match="half of a surrogate pair"):
        canonical_text('```python\nprint("\\ud800" == "a")\n```\nWhat does it print?')


ASKED = "{0}\n```python\n{1} = 1\n{2} = 2\n```"


@pytest.mark.parametrize(
    "wording", ["What is rate then?", "What is `rate` then?", "Give “rate”:", "See ['rate']"]
)
def test_names_of_which_the_wording_speaks_count(wording: str) -> None:
    twins = [canonical_text(ASKED.format(wording, *names)) for names in (NAMES, NAMES[::-1])]
    assert twins[0].text != twins[1].text
    other = canonical_text(ASKED.format("How many names are bound?", *NAMES))
    assert other == canonical_text(ASKED.format("How many names are bound?", *NAMES[::-1]))


NAMES = ("rate", "part")


@pytest.mark.parametrize(
    "wording",
    ["What is the last line, standard error included?", "Which EXCEPTION?", "What is raised?"],
)
def test_names_count_where_the_text_of_an_error_is_asked_for(wording: str) -> None:
    twins = [canonical_text(ASKED.format(wording, *names)) for names in (NAMES, NAMES[::-1])]
    assert twins[0].text != twins[1].text


def test_a_slots_value_is_no_part_of_the_structure_beside_code() -> None:
    texts = [ASKED.format(f"What is `{name}` then?", *NAMES) for name in (*NAMES, "other")]
    assert len({canonical_text(text).text for text in texts}) == 1


def test_names_that_another_block_uses_count() -> None:
    use = "```python\ndef {0}(): return 1\ndef {1}(): return 2\n```\n```python\nprint(rate())\n```"
    assert canonical_text(use.format(*NAMES)).text != canonical_text(use.format(*NAMES[::-1])).text


@pytest.mark.parametrize("names", [("मूल्य", "राशि"), ("ค่า", "ผล"), ("prix", "ℨ℘"), ("a·b", "c")])
def test_names_in_any_script_are_found(names: tuple[str, str]) -> None:
    """A vowel sign is a part of a name, and none of what a regular expression calls a word."""
    text = "What is {} in the end?\n```python\n{} = n * 2\n{} = n * 5\n```"
    twins = [text.format(names[0], *order) for order in (names, names[::-1])]
    assert canonical_text(twins[0]).text != canonical_text(twins[1]).text
    call = "def f({0}, {1}): print({0})\nf(**{{'" + names[0] + "': 5, '" + names[1] + "': 3}})"
    assert digest_of(call.format(*names)) != digest_of(call.format(*names[::-1]))


def test_a_docstring_does_not_keep_a_name() -> None:
    documented = "def f({0}):\n  'Gives {0}.'\n  return {0}"
    assert digest_of(documented.format("gain")) == digest_of(documented.format("loss"))


UNREAD = ["t = 1\nfor i in 1 2:\n    t += i\n{}t *= 2", ">>> f(3)\n{}4", "def f(:\n{}pass"]


@pytest.mark.parametrize("source", UNREAD)
def test_a_block_that_is_not_python_counts_letter_by_letter(source: str) -> None:
    one, other = (BLOCK.format(source.format(indent)) for indent in ("", "    "))
    assert canonical_text(one).text != canonical_text(other).text
    assert canonical_text(one).text == canonical_text(one.replace("\n", "\r\n")).text
    assert not canonical_text(one).slots
    assert not has_code(one)
    assert unread_line(one) == 2
    assert indented_line(other) is None


def test_a_block_that_is_read_is_none_that_is_not() -> None:
    assert unread_line("Run 3\n" + BLOCK.format("x = 1")) is None
    assert unread_line(BLOCK.format("x = 1") + "\n\n" + BLOCK.format("a b")) == 8
    document = json.dumps(code_tree(ast.parse("x = 1")), separators=(",", ":"))
    assert digest_of(document) != digest_of("x = 1")


def test_what_is_no_block_stays_text() -> None:
    assert "{code:" not in canonical_text("```python\nx = 1").text
    assert "{code:" not in canonical_text("``` python\nx = 1\n```").text
    assert "{code:" in canonical_text("```python\r\nx = '\\d'\r\n```").text


def test_code_nested_too_deeply_is_refused() -> None:
    with pytest.raises(UsageError, match="deeply"):
        digest_of("x = " + "-" * 2000 + "1")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("one\n  two", 2),
        ("one\r\n\ttwo", 2),
        (" one\ntwo", None),
        ("one\n  \n\ntwo", None),
        (BLOCK.format("for i in x:\n    i"), None),
        (BLOCK.format("for i in x:\n    i") + "\n then", 7),
        ("```py\nfor i in x:\n    i\n```", 3),
    ],
)
def test_where_white_space_does_not_count_although_it_seems_to(text: str, line: int | None) -> None:
    assert indented_line(text) == line


FORMATTED = [
    ("f'{x:>{w}}'", "f'{x:>{w}}'"),
    ("f'{x:{w}.{p}f}'", "f'{x:{w}.{p}f}'"),
    ("f'a{x!r:{w}}b' 'c'", "f'a{x!r:{w}}bc'"),
]


@pytest.mark.parametrize(("one", "same"), FORMATTED)
def test_a_formatted_string_is_one_whatever_parts_the_parser_makes(one: str, same: str) -> None:
    """As Python 3.12 makes them: an empty part at the end of a format that ends in a field."""
    tree = ast.parse(one)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            node.values.append(ast.Constant(""))
            node.values.insert(0, ast.Constant(""))
    assert code_tree(tree) == code_tree(ast.parse(same))
    assert code_tree(tree) != code_tree(ast.parse(same.replace("x", "y", 1) + "; x = 1"))
