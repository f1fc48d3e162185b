"""Python code by its syntax tree: layout, comments, docstrings and bound names do not count."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias, TypeVar

from kvg import canon
from kvg.canon import Json
from kvg.digest import hex_of, sha256
from kvg.errors import UsageError

MAX_DEPTH: Final = 400
"""Levels of arrays and objects in the document of one tree; deeper code is not addressed."""

_DROPPED: Final = frozenset({"ctx", "kind", "type_comment", "type_params", "type_ignores"})
_NAMED: Final = frozenset({"id", "arg", "name", "asname", "rest"})
"""Fields that hold a name that the block may bind; attributes and keywords of calls are not."""

_WITH_DOCSTRING: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
Names: TypeAlias = Mapping[str, str]
Tree = TypeVar("Tree", ast.Module, ast.Expression)


def code_digest(source: str) -> str | None:
    """The 64 hex digits of the address of ``source``; None when it is not Python.

    Raises ``UsageError`` for code nested too deeply.
    """
    try:
        tree = parse_python(source, ast.Module)
    except (SyntaxError, ValueError):
        return None
    except (RecursionError, MemoryError):
        raise _too_deep() from None
    try:
        document = canon.encode(code_tree(tree), max_depth=MAX_DEPTH)
    except (ValueError, RecursionError):
        raise _too_deep() from None
    return hex_of(sha256(document))


def parse_python(source: str | bytes, kind: type[Tree]) -> Tree:
    """The syntax tree of ``source``, a module or an expression; nothing is run, nothing warned of.

    Raises what ``ast.parse`` does.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(source, mode="exec" if kind is ast.Module else "eval")
    if not isinstance(tree, kind):
        raise SyntaxError("not what was asked for")
    return tree


def code_tree(tree: ast.AST) -> Json:
    """The canonical JSON of a syntax tree: ``[type, {field: value}]``.

    Two things keep different code apart that plain renaming would confuse: a name that a call in
    the block gives by keyword keeps its spelling, and no bound name gets one that is used unbound.
    """
    return node_tree(tree, _renamed(tree))


def _too_deep() -> UsageError:
    return UsageError("code in the problem is nested too deeply", hint="give a simpler block")


def _renamed(tree: ast.AST) -> Names:
    bound = list(dict.fromkeys(bindings(tree)))
    nodes = list(ast.walk(tree))
    keywords = {node.arg for node in nodes if isinstance(node, ast.keyword) and node.arg}
    free = {node.id for node in nodes if isinstance(node, ast.Name)} - set(bound)
    taken = free | keywords
    fresh = (f"v{n}" for n in range(len(bound) + len(taken) + 1) if f"v{n}" not in taken)
    return {name: next(fresh) for name in bound if name not in keywords}


def bindings(node: ast.AST) -> Iterator[str]:
    """Names that are bound, in the order in which the tree has them."""
    yield from _bound_here(node)
    for field in node._fields:
        for child in _children(getattr(node, field, None)):
            yield from bindings(child)


def _bound_here(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()):
            yield name
        case ast.arg(arg=name):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.alias(name=name, asname=asname):
            if name != "*":
                yield asname or name.partition(".")[0]
        case ast.MatchMapping(rest=rest) if rest is not None:
            yield rest
        case ast.ExceptHandler(name=held) | ast.MatchAs(name=held) | ast.MatchStar(name=held):
            if held is not None:
                yield held
        case _:
            return


def _children(value: object) -> Iterator[ast.AST]:
    if isinstance(value, ast.AST):
        yield value
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, ast.AST):
                yield item


def node_tree(node: ast.AST, names: Names) -> Json:
    """As ``code_tree``, with ``names`` in the places of those that they are given for."""
    fields: dict[str, Json] = {}
    for field in node._fields:
        value = getattr(node, field, None)
        if field in _DROPPED or value is None or value == []:
            continue
        if field == "body" and isinstance(node, _WITH_DOCSTRING):
            value = value[1:] if _is_docstring(value[0]) else value
            if not value:
                continue
        fields[field] = _field(node, field, value, names)
    return [type(node).__name__, fields]


def _is_docstring(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _field(node: ast.AST, field: str, value: object, names: Names) -> Json:
    if isinstance(value, ast.AST):
        return node_tree(value, names)
    if isinstance(value, list):
        return list(_items(node, value, names))
    if isinstance(value, str):
        return names.get(value, value) if _is_name(node, field) else value
    return constant(value)


def _is_name(node: ast.AST, field: str) -> bool:
    """What an import takes is a name of elsewhere; only what it is called here is the block's."""
    if isinstance(node, ast.keyword) or (isinstance(node, ast.alias) and field == "name"):
        return False
    return field in _NAMED


def _items(node: ast.AST, values: Iterable[object], names: Names) -> Iterator[Json]:
    is_scope = isinstance(node, ast.Global | ast.Nonlocal)
    for value in values:
        if isinstance(value, ast.AST):
            yield node_tree(value, names)
        elif isinstance(value, str):
            yield names.get(value, value) if is_scope else value
        else:
            yield constant(value)


def constant(value: object) -> Json:
    """A constant with its type, so that no two spell alike; a string stands for itself.

    A ``Constant`` of None has no value field, as every field that is None; an empty string has.
    """
    if value is None:
        return ["none"]
    if isinstance(value, bool):
        return ["bool", value]
    if isinstance(value, int):
        return ["int", str(value)]
    if isinstance(value, str):
        return value
    return [type(value).__name__, repr(value)]
