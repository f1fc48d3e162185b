"""Whether a checker has the program in it that it judges."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kvg.problem.independence import shared_part

PROGRAM = """
from math import comb as choose

STEP = 2


def half(n):
    return n // STEP


def solve(a, b):
    total = 0
    for n in range(a, b + 1):
        total += half(n) * choose(n, 2)
    return total
"""
SOLVE = PROGRAM.partition("def solve")[2]

RENAMED = (
    """
# the checker
from math import comb

TWO: int = 2

def other(x: int) -> int:
    "Half of it."
    pass
    return (x
            // TWO)

def answer_of(low: int, high: int = None) -> int:
    """.replace("high: int = None", "high: int")
    + """
    result: int = 0
    for item in range(low, high + 1):
        result += other(item) * comb(item, 2)
        ...
    return result

def check(answer, a, b):
    return answer == answer_of(a, b)
"""
)

COPIES = {
    "the same bytes": (PROGRAM, "is the program itself"),
    "laid out anew": ("# one\n" + PROGRAM.replace("    ", "  "), "is the program itself"),
    "with other names": (
        PROGRAM.replace("total", "t")
        .replace("half", "h")
        .replace("choose", "c")
        .replace("solve", "s"),
        "is the program itself",
    ),
    "beside a check": (
        PROGRAM + "def check(answer, a, b):\n    return answer == solve(a, b)\n",
        "solve in it, as solve",
    ),
    "annotated, renamed, beside a check": (RENAMED, "solve in it, as answer_of"),
    "inside the check": (
        PROGRAM.partition("def solve")[0]
        + "def check(answer, a, b):\n    def inner"
        + SOLVE.replace("\n", "\n    ")
        + "\n    return answer == inner(a, b)\n",
        "solve in it, as inner",
    ),
    "as text": (
        f"exec({PROGRAM!r})\ndef check(answer, a, b):\n    return answer == solve(a, b)",
        "solve in it, as text",
    ),
    "as bytes": (
        f"exec({PROGRAM.encode()!r})\ncheck = lambda answer, *s: answer == solve(*s)",
        "as text",
    ),
}


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_is_found(name: str) -> None:
    checker, said = COPIES[name]
    found = shared_part(PROGRAM.encode(), checker.encode())
    assert found is not None and said in found


def test_a_lambda_is_a_function() -> None:
    program = b"def solve(a, b): return a * b"
    checker = b"check = lambda answer, a, b: answer == (lambda x, y: x * y)(a, b)"
    assert shared_part(program, checker) == "has the program's solve in it, as a lambda"
    assert (
        shared_part(b"solve = lambda a, b: a * b", b"def product(x, y):\n  return x * y")
        is not None
    )


OTHERS = {
    "another way": "def check(answer, a, b): return answer == sum(b for _ in range(a))",
    "another operator": "def check(x, a, b): return x == f(a, b)\ndef f(a, b): return a + b",
    "other operands": "def check(x, a, b): return x == f(a, b)\ndef f(a, b): return a * a",
    "no Python": "def check(",
    "a text that is none": "def check(answer, a, b): return answer == 'def solve('",
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_different_is_let_be(name: str) -> None:
    program = b"def solve(a, b): return a * b"
    assert shared_part(program, OTHERS[name].encode()) is None
    assert shared_part(b"def solve(", b"def solve(") is None  # its first call tells


def test_names_of_elsewhere_count() -> None:
    """The same call of another function is another program."""
    form = "from operator import {0}\ndef {1}(a, b): return {0}(a, b)\n"
    mul, add = (form.format(name, "f").encode() for name in ("mul", "add"))
    assert shared_part(form.format("mul", "solve").encode(), mul) is not None
    assert shared_part(form.format("mul", "solve").encode(), add) is None
    form = "def g(a): return a {0} 2\ndef {1}(a, b): return g(a) * b\n"
    plus, minus = (form.format(sign, "f").encode() for sign in "+-")
    assert shared_part(form.format("+", "solve").encode(), plus) is not None
    assert shared_part(form.format("+", "solve").encode(), minus) is None


def test_recursion_and_depth() -> None:
    program = (
        "def even(n): return n == 0 or odd(n - 1)\ndef odd(n): return n != 0 and even(n - 1)\n"
    )
    solve = "def {0}(n): return even(n) if n else {0}(n)\n"
    checker = program + solve.format("again") + "def check(answer, n): return answer == again(n)\n"
    found = shared_part((program + solve.format("solve")).encode(), checker.encode())
    assert found == "has the program's solve in it, as again"
    for hard in ("-" * 5000 + "a", "-" * 900 + "a", "0x" + "f" * 9000):
        said = shared_part(f"def solve(a): return {hard}".encode(), b"def check(answer, a): pass")
        assert said is not None and "to be compared" in said


def test_the_examples_check_for_themselves() -> None:
    families = Path(__file__).resolve().parents[2] / "examples" / "families"
    folders = [folder for folder in families.iterdir() if folder.is_dir()]
    assert len(folders) == 9
    for folder in folders:
        program, checker = (folder / f"{name}.py" for name in ("program", "checker"))
        assert shared_part(program.read_bytes(), checker.read_bytes()) is None


def test_half_a_character_is_a_constant_like_any_other() -> None:
    program = b"def solve(a): return '\\ud800' * a"
    assert shared_part(program, b"def check(x, a): return x == chr(0xd800) * a") is None
    assert shared_part(program, b"def f(n): return '\\ud800' * n") is not None
    assert shared_part(program, b"def f(n): return '\\ud801' * n") is None


def test_time_grows_as_the_checker_does() -> None:
    """Functions in functions are not each compared whole."""
    names = ", ".join(["a"] * 20_000)
    nested = f"def check(x, a, b):\n    return x - b == a\nf = {'lambda: ' * 90}({names})\n"
    began = time.process_time()
    assert shared_part(b"def solve(a, b):\n    return a + b\n", nested.encode()) is None
    assert time.process_time() - began < 3


@pytest.mark.parametrize(
    "program",
    [
        "def f(a, b):\n    return a * b + 7\nsolve = f\n",
        "def f(a, b):\n    return a * b + 7\ng = f\nsolve = g\n",
        "if True:\n    def solve(a, b):\n        return a * b + 7\n",
        "try:\n    def solve(a, b):\n        return a * b + 7\nexcept ValueError:\n    pass\n",
        "f = solve = lambda a, b: a * b + 7\n",
        "print((solve := lambda a, b: a * b + 7))\n",
    ],
)
def test_a_program_is_found_by_whatever_way_its_function_is_named(program: str) -> None:
    held = "lambda x, y: x * y + 7"
    checker = f"def check(answer, x, y):\n    held = {held}\n    return held(x, y) == answer\n"
    assert "has the program's solve in it" in (
        shared_part(program.encode(), checker.encode()) or ""
    )
