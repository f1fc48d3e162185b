"""The program that a constraint becomes: Python's own functions, whatever slots are called."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable

import pytest

from kvg.flow.method import constraint_program


def holds(constraint: str, *names: str, n_slots: int = 2) -> Callable[..., object]:
    scope: dict[str, object] = {}
    exec(constraint_program(constraint, names, n_slots), scope)  # noqa: S102
    found = scope["holds"]
    assert callable(found)
    return found


def test_functions_of_python_go_before_those_of_math() -> None:
    assert holds("pow(s0, s1, 7) == 2")(3, 2) is True
    assert holds("gcd(s0, s1) == 3 and floor(pi) == 3")(6, 9) is True
    both = {name for name in vars(math) if hasattr(builtins, name) and not name.startswith("_")}
    assert "pow" in both
    for name in both:
        assert holds(f"{name} is given", "given")(getattr(builtins, name), 0) is True


@pytest.mark.parametrize("name", ["bool", "pow", "not_met", "print", "holds", "int"])
def test_a_slot_of_any_name_is_that_slot(name: str) -> None:
    condition = holds(f"{name} < s1 and [{name}]", name)
    assert condition(1, 2) is True and condition(2, 1) is False
