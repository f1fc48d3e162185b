"""Whether a checker has the program in it that it judges, once what makes no difference is gone.

That is layout, comments, docstrings, annotations, statements that do nothing, and what parameters,
locals, functions and modules are called. Functions that one function calls are part of it, as far
as they stand in the same file.

Two that are found to be different are **not** shown to be independent: the same steps in another
order or spelling, the program in an encoding, or two people with one wrong idea all pass.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final, TypeAlias

from kvg.digest import Digest, sha256
from kvg.problem.code import node_tree, parse_python
from kvg.problem.naming import bindings

SOLVE: Final = "solve"
"""The function of a program that answers."""

DEPTH: Final = 4
"""How far the names of a file are followed from one function to the next."""

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def shared_part(program: bytes, checker: bytes) -> str | None:
    """What the checker has of the program, in words; None where nothing was found, and where one of
    them is not Python, which its first call tells."""
    try:
        mine, other = _parsed(program), _parsed(checker)
        return None if mine is None or other is None else _shared(mine, other)
    except (ValueError, RecursionError, MemoryError):
        return "is nested too deeply, or has numbers too long, to be compared with the program"


def _parsed(source: str | bytes) -> _Code | None:
    """The code of a file; None where it is not Python."""
    try:
        tree = parse_python(source, ast.Module)
    except (SyntaxError, ValueError):
        return None
    return _Code(tree)


def _shared(program: _Code, checker: _Code) -> str | None:
    if program.whole() == checker.whole():
        return "is the program itself, but for names and layout"
    solve = program.stands_for(SOLVE)
    if solve is None:
        return None
    wanted, size = program.shape(solve), program.size(solve)
    for function in checker.functions(size):
        if checker.shape(function) == wanted:
            name = getattr(function, "name", "a lambda")
            return f"has the program's {SOLVE} in it, as {name}"
    for text in checker.texts():
        if _has(text, wanted, size):
            return f"has the program's {SOLVE} in it, as text"
    return None


def _has(text: str | bytes, wanted: Digest, size: int) -> bool:
    """Whether ``text`` is Python with a function of that shape and size."""
    code = _parsed(text)
    return code is not None and any(code.shape(held) == wanted for held in code.functions(size))


class _Code:
    """One file: its tree without what makes no difference, and what its names stand for."""

    def __init__(self, tree: ast.Module) -> None:
        _make_plain(tree)
        self._tree = tree
        self._sizes: dict[int, int] = {}
        for node in reversed([*ast.walk(tree)]):  # what is inside before what it is inside
            inner = map(id, ast.iter_child_nodes(node))
            self._sizes[id(node)] = 1 + sum(map(self._sizes.__getitem__, inner))
        self._shapes: dict[tuple[str, int], Digest] = {}
        self.definitions: dict[str, ast.AST] = {}
        self._imported: dict[str, str] = {}
        for node in _outside_functions(self._tree):
            self._define(node)

    def _define(self, node: ast.AST) -> None:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                self.definitions[name] = node
            case ast.ClassDef(name=name):
                self.definitions[name] = node
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    if isinstance(target, ast.Name):
                        self.definitions[target.id] = value
            case ast.NamedExpr(target=ast.Name(id=name), value=value):
                self.definitions[name] = value
            case ast.Import(names=names):
                for item in names:
                    self._imported[item.asname or item.name.partition(".")[0]] = item.name
            case ast.ImportFrom(names=names, module=module):
                for item in names:
                    self._imported[item.asname or item.name] = f"{module}.{item.name}"

    def stands_for(self, name: str) -> ast.AST | None:
        """What ``name`` was given last, by way of other names; None where nothing gives it."""
        found = self.definitions.get(name)
        for _ in range(DEPTH):
            if not isinstance(found, ast.Name):
                return found
            found = self.definitions.get(found.id)
        return None

    def functions(self, size: int) -> Iterator[Function]:
        """Every function of that size, wherever it stands: none lies in another of them."""
        for node in ast.walk(self._tree):
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                    if self.size(node) == size:
                        yield node

    def size(self, node: ast.AST) -> int:
        """How many nodes it has, one of this file; of a lambda, as the function that it is."""
        return self._sizes[id(node)] + isinstance(node, ast.Lambda)

    def texts(self) -> Iterator[str | bytes]:
        """Every string that could hold a function."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
                yield node.value

    def whole(self) -> Digest:
        """The shape of the file."""
        return _digest(self._tree, _numbered(self._tree))

    def shape(self, node: ast.AST, depth: int = DEPTH) -> Digest:
        """The digest of ``node`` with the names that it binds numbered in their order, and each
        name of this file replaced by the shape of what it stands for, ``depth`` names deep."""
        node = _as_function(node)
        names = _numbered(node)
        for name in dict.fromkeys(item.id for item in ast.walk(node) if isinstance(item, ast.Name)):
            if name in names:
                continue
            if name in self._imported:
                names[name] = f"import {self._imported[name]}"
            elif name in self.definitions:
                names[name] = self._stands_for(name, depth - 1)
        return _digest(node, names)

    def _stands_for(self, name: str, depth: int) -> str:
        if depth < 0:
            return "defined here"
        if (name, depth) not in self._shapes:
            self._shapes[name, depth] = self.shape(self.definitions[name], depth)
        return self._shapes[name, depth]


def _outside_functions(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node but those inside of functions and classes, in their order."""
    waiting = [*ast.iter_child_nodes(tree)][::-1]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting += [*ast.iter_child_nodes(node)][::-1]


def _digest(node: ast.AST, names: dict[str, str]) -> Digest:
    """Of the spelling in ASCII: code may hold half a character, which no document does."""
    return sha256(ascii(node_tree(node, names)).encode())


def _numbered(node: ast.AST) -> dict[str, str]:
    return {name: f"v{n}" for n, name in enumerate(dict.fromkeys(bindings(node)))}


def _as_function(node: ast.AST) -> ast.AST:
    """A lambda as the function that it is; anything else as it is."""
    match node:
        case ast.Lambda(args=args, body=body):
            return ast.FunctionDef(SOLVE, args, [ast.Return(body)], [])
    return node


def _make_plain(tree: ast.AST) -> None:
    """Take away annotations and statements that do nothing, in place."""
    for node in ast.walk(tree):
        for field in ("annotation", "returns"):
            if isinstance(node, ast.arg | ast.FunctionDef | ast.AsyncFunctionDef):
                setattr(node, field, None)
        for field in ("body", "orelse", "finalbody"):
            held = getattr(node, field, None)
            if isinstance(held, list):
                setattr(node, field, [_plain(item) for item in held if not _is_idle(item)])


def _plain(node: ast.AST) -> ast.AST:
    match node:
        case ast.AnnAssign(target=target, value=value) if value is not None:
            return ast.Assign(targets=[target], value=value)
    return node


def _is_idle(node: ast.AST) -> bool:
    match node:
        case ast.Pass() | ast.Expr(value=ast.Constant()) | ast.AnnAssign(value=None):
            return True
    return False
