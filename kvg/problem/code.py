"""Python code by its syntax tree: layout, comments, docstrings and bound names do not count, as far
as the code can't see them itself."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Final, TypeAlias, TypeVar

from kvg import canon
from kvg.canon import Json
from kvg.digest import hex_of, sha256
from kvg.errors import UsageError
from kvg.problem.naming import bindings, docstring, names_seen, names_used, sees_names

MAX_DEPTH: Final = 400
"""Levels of arrays and objects in the document of one tree; deeper code is not addressed."""

_DROPPED: Final = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
_NAMED: Final = frozenset({"id", "arg", "name", "asname", "rest"})
"""Fields that hold a name that the block may bind; attributes and keywords of calls are not."""

Names: TypeAlias = Mapping[str, str]
Tree = TypeVar("Tree", ast.Module, ast.Expression)


def read_code(source: str) -> ast.Module | None:
    """The syntax tree of ``source``; None when it is not Python.

    Raises ``UsageError`` for code nested too deeply.
    """
    try:
        return parse_python(source, ast.Module)
    except (SyntaxError, ValueError):
        return None
    except (RecursionError, MemoryError):
        raise _too_deep() from None


def code_digest(tree: ast.Module, words: Set[str] | None = frozenset()) -> str:
    """The 64 hex digits of the address of a block of code.

    ``words`` are those of the problem around it, which may speak of its names; None where it holds
    strings, which may be any of them. Raises ``UsageError`` for code nested too deeply.
    """
    try:
        document = canon.encode(code_tree(tree, words), max_depth=MAX_DEPTH)
    except UnicodeEncodeError:
        raise UsageError(
            "code in the problem has half of a surrogate pair in a string, which is no text"
        ) from None
    except (ValueError, RecursionError):
        raise _too_deep() from None
    return hex_of(sha256(document))


def unread_digest(source: str) -> str:
    """The address of a block that this Python can't read: no two that differ by a letter share it,
    as their differences may be the problem, and none shares it with one that is read."""
    return hex_of(sha256(canon.encode(["unread", source])))


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


def code_tree(tree: ast.Module, words: Set[str] | None = frozenset()) -> Json:
    """The canonical JSON of a syntax tree: ``[type, {field: value}]``.

    A bound name that something else than Python's rules of scope can tell from another keeps its
    spelling (``names_seen``), and none gets one that is used already. Code that can read its own
    names or docstrings keeps all of them.
    """
    is_seen = sees_names(tree)
    if words is None or is_seen:
        return node_tree(tree, {}, with_docstrings=is_seen)
    bound = list(dict.fromkeys(bindings(tree)))
    kept = names_seen(tree) | words
    taken = kept | (names_used(tree) - set(bound))
    fresh = (f"v{n}" for n in range(len(bound) + len(taken) + 1) if f"v{n}" not in taken)
    return node_tree(tree, {name: next(fresh) for name in bound if name not in kept})


def _too_deep() -> UsageError:
    return UsageError("code in the problem is nested too deeply", hint="give a simpler block")


def node_tree(node: ast.AST, names: Names, *, with_docstrings: bool = False) -> Json:
    """As ``code_tree``, with ``names`` in the places of those that they are given for."""
    fields: dict[str, Json] = {}
    for field in node._fields:
        value = getattr(node, field, None)
        if isinstance(node, ast.JoinedStr):
            value = _joined(node.values)
        if field in _DROPPED or value is None or value == []:
            continue
        if field == "body" and docstring(node) is not None and not with_docstrings:
            is_all = isinstance(node, ast.Module) and len(value) == 1
            value = value if is_all else value[1:]
            if not value:
                continue
        fields[field] = _field(node, field, value, names, with_docstrings)
    return [type(node).__name__, fields]


def _joined(values: Iterable[ast.expr]) -> list[ast.expr]:
    """The parts of a formatted string, each stretch of text one part and none of them empty: which
    parts there are of the same string differs from one Python to the next."""
    found = list[ast.expr]()
    for part in values:
        match part, found[-1:]:
            case ast.Constant(value=str(text)), [ast.Constant(value=str(before))]:
                found[-1] = ast.Constant(before + text)
            case ast.Constant(value=""), _:
                continue
            case _:
                found.append(part)
    return found


def _field(node: ast.AST, field: str, value: object, names: Names, with_docstrings: bool) -> Json:
    if isinstance(value, ast.AST):
        return node_tree(value, names, with_docstrings=with_docstrings)
    if isinstance(value, list):
        return list(_items(node, value, names, with_docstrings))
    if isinstance(value, str):
        return names.get(value, value) if _is_name(node, field) else value
    return constant(value)


def _is_name(node: ast.AST, field: str) -> bool:
    """What an import takes is a name of elsewhere; only what it is called here is the block's."""
    if isinstance(node, ast.keyword) or (isinstance(node, ast.alias) and field == "name"):
        return False
    return field in _NAMED


def _items(
    node: ast.AST, values: Iterable[object], names: Names, with_docstrings: bool
) -> Iterator[Json]:
    is_scope = isinstance(node, ast.Global | ast.Nonlocal)
    for value in values:
        if isinstance(value, ast.AST):
            yield node_tree(value, names, with_docstrings=with_docstrings)
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
