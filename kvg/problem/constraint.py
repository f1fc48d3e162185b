"""Constraints: a Python expression in one normal form. Parsed, never evaluated.

Only what is sure not to change the meaning is reordered: ``and`` and ``or`` where nothing but
truth is asked for, ``+ * & | ^`` of what is numeric for certain, the sides of ``==`` and ``!=``,
sets, and keyword arguments. Slots are never swapped.
"""

from __future__ import annotations

import ast
import keyword
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kvg import canon
from kvg.canon import Json
from kvg.errors import UsageError
from kvg.problem.code import parse_python
from kvg.problem.literals import NUMERIC
from kvg.problem.looking import LOOKING

MAX_CHARS: Final = 1 << 16
_NUMERIC_CALLS: Final = frozenset({"len", "abs", "gcd", "lcm", "ord", "int", "float", "round"})
_SLOT_NAME: Final = re.compile(r"s(0|[1-9][0-9]{0,8})", re.ASCII)
_BINARY: Final[Mapping[type[ast.operator], str]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.MatMult: "@",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}
_COMMUTATIVE: Final = frozenset("+*&|^")
_COMPARE: Final[Mapping[type[ast.cmpop], str]] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Is: "is",
    ast.IsNot: "is not",
}
_TURNED: Final = {">": "<", ">=": "<="}
Node = list[Json]


def normal_constraint(text: str, types: Sequence[str], names: Sequence[str] = ()) -> Json:
    """The normal form of the constraint ``text`` over slots of ``types``, as canonical JSON.

    A slot is named ``s0``, ``s1``, … or by its place in ``names``. Raises ``UsageError`` naming
    what is not an expression of the constraint language.
    """
    if len(text) > MAX_CHARS:
        raise UsageError(f"constraint of {len(text)} characters: more than {MAX_CHARS}")
    tree = _parse(text)
    normal = _Normaliser(types, slot_names(types, names))
    try:
        found = normal.truth(tree, ())
        canon.encode(found)
    except (ValueError, RecursionError):
        raise UsageError("constraint: nested too deeply, or a number too long") from None
    return found


def _parse(text: str) -> ast.expr:
    try:
        return parse_python(text.strip(), ast.Expression).body
    except SyntaxError as error:
        raise UsageError(f"constraint: not a Python expression: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError):
        raise UsageError("constraint: not a Python expression that can be read") from None


def slot_names(types: Sequence[str], names: Sequence[str]) -> Mapping[str, int]:
    """The places of slots by what they may be called. Raises ``UsageError``."""
    found = {f"s{n}": n for n in range(len(types))}
    if len(names) > len(types):
        raise UsageError(f"{len(names)} slot names for {len(types)} slots")
    for number, name in enumerate(names):
        clash = _SLOT_NAME.fullmatch(name) and name != f"s{number}"
        if not is_free_name(name) or clash or found.get(name, number) != number:
            raise UsageError(f"slot name {name!r}: not a name of its own for slot {number}")
        found[name] = number
    return found


def is_free_name(name: str) -> bool:
    """Whether Python takes ``name``, spelt just so, for a name that can be given to something."""
    is_normal = unicodedata.normalize("NFKC", name) == name
    is_taken = keyword.iskeyword(name) or name == "__debug__"
    return name.isidentifier() and is_normal and not is_taken


def _sorted(items: Iterable[Json]) -> list[Json]:
    return sorted(items, key=canon.encode)


class _Normaliser:
    """One expression's way to its normal form. ``bound``: names from outermost to innermost."""

    def __init__(self, types: Sequence[str], slots: Mapping[str, int]) -> None:
        self._types = types
        self._slots = slots

    def truth(self, node: ast.expr, bound: tuple[str, ...]) -> Json:
        """``node`` where only its truth is asked for."""
        match node:
            case ast.BoolOp(op=op, values=values):
                name = "and" if isinstance(op, ast.And) else "or"
                return _joined(name, [self.truth(value, bound) for value in values])
            case ast.UnaryOp(op=ast.Not(), operand=ast.UnaryOp(op=ast.Not(), operand=inner)):
                return self.truth(inner, bound)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return ["not", self.truth(operand, bound)]
            case ast.Compare():
                steps = self._comparisons(node, bound)
                return steps[0] if len(steps) == 1 else _joined("and", steps)
            case _:
                return self.value(node, bound)

    def value(self, node: ast.expr, bound: tuple[str, ...]) -> Json:
        """``node`` where its value counts."""
        match node:
            case ast.Name(id=name):
                return self._name(name, bound)
            case ast.Constant(value=value):
                return _constant(value)
            case ast.BoolOp(op=op, values=values):
                name = "and" if isinstance(op, ast.And) else "or"
                return [name, *(self.value(value, bound) for value in values)]
            case ast.UnaryOp():
                return self._unary(node, bound)
            case ast.BinOp():
                return self._binary(node, bound)
            case ast.Compare():
                steps = self._comparisons(node, bound)
                return steps[0] if len(steps) == 1 else ["and", *steps]
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return ["if", self.truth(test, bound), *self._values((body, orelse), bound)]
            case ast.Call():
                return self._call(node, bound)
            case ast.Attribute(value=value, attr=attr):
                return ["attr", self.value(value, bound), attr]
            case ast.Subscript(value=value, slice=index):
                return ["item", *self._values((value, index), bound)]
            case ast.Tuple(elts=elts):
                return ["tuple", *self._values(elts, bound)]
            case ast.List(elts=elts):
                return ["list", *self._values(elts, bound)]
            case ast.Set(elts=elts):
                return ["set", *_without_repeats(self._values(elts, bound))]
            case ast.Lambda():
                return self._lambda(node, bound)
            case ast.GeneratorExp(elt=elt, generators=loops):
                return self._comprehension("genexpr", elt, loops, bound)
            case ast.ListComp(elt=elt, generators=loops):
                return self._comprehension("listcomp", elt, loops, bound)
            case ast.SetComp(elt=elt, generators=loops):
                return self._comprehension("setcomp", elt, loops, bound)
            case _:
                raise _refused(node)

    def _values(self, nodes: Iterable[ast.expr], bound: tuple[str, ...]) -> list[Json]:
        return [self.value(node, bound) for node in nodes]

    def _name(self, name: str, bound: tuple[str, ...]) -> Json:
        for back, known in enumerate(reversed(bound)):
            if known == name:
                return ["bound", back]
        if name in self._slots:
            return ["slot", self._slots[name]]
        if name in LOOKING or (name.startswith("__") and name.endswith("__")):
            raise UsageError(f"constraint: {name} is not allowed: it sees how things are called")
        return ["name", name]

    def _unary(self, node: ast.UnaryOp, bound: tuple[str, ...]) -> Json:
        operand = self.value(node.operand, bound)
        match node.op:
            case ast.Not():
                return ["not", operand]
            case ast.USub():
                return ["neg", operand]
            case ast.UAdd():
                return operand if self._is_numeric(operand) else ["pos", operand]
            case _:
                raise _refused(node.op)

    def _binary(self, node: ast.BinOp, bound: tuple[str, ...]) -> Json:
        name = _BINARY[type(node.op)]
        operands = [self.value(node.left, bound), self.value(node.right, bound)]
        if name in _COMMUTATIVE and all(self._is_numeric(operand) for operand in operands):
            return _joined(name, operands)
        return [name, *operands]

    def _is_numeric(self, node: Json) -> bool:
        """Whether the normal form ``node`` is a number for certain."""
        match node:
            case ["int" | "float", _]:
                return True
            case ["slot", int(number)]:
                return self._types[number] in NUMERIC
            case ["neg", operand]:
                return self._is_numeric(operand)
            case ["call", ["name", str(name)], *_]:
                return name in _NUMERIC_CALLS
            case [str(name), *operands] if name in _BINARY.values():
                return all(self._is_numeric(operand) for operand in operands)
            case _:
                return False

    def _comparisons(self, node: ast.Compare, bound: tuple[str, ...]) -> list[Json]:
        sides = self._values((node.left, *node.comparators), bound)
        names = [_COMPARE[type(op)] for op in node.ops]
        return [
            _compared(name, left, right)
            for name, left, right in zip(names, sides, sides[1:], strict=False)
        ]

    def _call(self, node: ast.Call, bound: tuple[str, ...]) -> Json:
        if node.keywords and not self._is_named(node.func, bound):
            raise UsageError(
                "constraint: keyword arguments of what has no name of its own are not allowed",
                hint="what a lambda calls its parameters does not count",
            )
        keywords: list[tuple[str, Json]] = []
        for given in node.keywords:
            if given.arg is None:
                raise _refused(given)
            keywords.append((given.arg, self.value(given.value, bound)))
        if len({name for name, _ in keywords}) != len(keywords):
            raise UsageError("constraint: a keyword argument is given twice")
        called = self.value(node.func, bound)
        if isinstance(node.func, ast.Name) and isinstance(called, list) and called[0] == "slot":
            raise UsageError(
                f"constraint: {node.func.id} is a slot, not a function", hint="give another --name"
            )
        return [
            "call",
            called,
            *self._values(node.args, bound),
            *(["kw", name, value] for name, value in sorted(keywords, key=lambda item: item[0])),
        ]

    def _is_named(self, node: ast.expr, bound: tuple[str, ...]) -> bool:
        """Whether ``node`` is a function of Python's own, or one of a module's."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and node.id not in (*bound, *self._slots)

    def _lambda(self, node: ast.Lambda, bound: tuple[str, ...]) -> Json:
        args = node.args
        if args.posonlyargs or args.kwonlyargs or args.vararg or args.kwarg or args.defaults:
            raise UsageError("constraint: lambda with anything but plain parameters is not allowed")
        inner = (*bound, *(arg.arg for arg in args.args))
        return ["lambda", str(len(args.args)), self.value(node.body, inner)]

    def _comprehension(
        self,
        name: str,
        element: ast.expr,
        loops: Sequence[ast.comprehension],
        bound: tuple[str, ...],
    ) -> Json:
        parts: list[Json] = []
        for loop in loops:
            if loop.is_async:
                raise UsageError("constraint: async for is not allowed")
            iterable = self.value(loop.iter, bound)
            target, names = _target(loop.target)
            bound = (*bound, *names)
            tests = _sorted(self.truth(test, bound) for test in loop.ifs)
            parts.append(["for", target, iterable, ["ifs", *tests]])
        return [name, self.value(element, bound), *parts]


def _joined(name: str, operands: Sequence[Json]) -> Json:
    """``operands`` of an operator whose order and grouping do not count."""
    flat: list[Json] = []
    for operand in operands:
        if isinstance(operand, list) and operand[0] == name:
            flat += operand[1:]
        else:
            flat.append(operand)
    return [name, *_sorted(flat)]


def _compared(name: str, left: Json, right: Json) -> Json:
    if name in _TURNED:
        return [_TURNED[name], right, left]
    if name in ("==", "!="):
        return [name, *_sorted((left, right))]
    return [name, left, right]


def _without_repeats(items: Sequence[Json]) -> list[Json]:
    return [item for _, item in sorted({canon.encode(item): item for item in items}.items())]


def _target(node: ast.expr) -> tuple[Json, tuple[str, ...]]:
    """The shape of a loop's target, and the names that it binds, in order."""
    if isinstance(node, ast.Name):
        return ["bind"], (node.id,)
    if not isinstance(node, ast.Tuple):
        raise _refused(node)
    parts = [_target(item) for item in node.elts]
    return (
        ["bindtuple", *(shape for shape, _ in parts)],
        tuple(name for _, names in parts for name in names),
    )


def _constant(value: object) -> Json:
    if value is None:
        return ["none"]
    if isinstance(value, bool):
        return ["bool", value]
    if isinstance(value, int):
        return ["int", str(value)]
    if isinstance(value, float):
        return ["float", repr(value)]
    if isinstance(value, str):
        return ["str", value]
    raise UsageError(f"constraint: a constant of type {type(value).__name__} is not allowed")


def _refused(node: ast.AST) -> UsageError:
    return UsageError(
        f"constraint: {type(node).__name__} is not allowed",
        hint="comparisons, arithmetic, calls, comprehensions and lambdas are",
    )
