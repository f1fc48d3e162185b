"""What a piece of Python calls things, and which of these names count beyond its scopes.

Two pieces that differ in bound names alone compute the same, unless something reads how a name is
spelt: an attribute, a keyword, a string, Python's own names, or code that looks at itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from kvg.problem.looking import sees, shows_functions, words_of

_BUILTINS = """
ArithmeticError AssertionError AttributeError BaseException BaseExceptionGroup BlockingIOError
BrokenPipeError BufferError BytesWarning ChildProcessError ConnectionAbortedError
ConnectionError ConnectionRefusedError ConnectionResetError DeprecationWarning EOFError Ellipsis
EncodingWarning EnvironmentError Exception ExceptionGroup False FileExistsError
FileNotFoundError FloatingPointError FutureWarning GeneratorExit IOError ImportError
ImportWarning IndentationError IndexError InterruptedError IsADirectoryError KeyError
KeyboardInterrupt LookupError MemoryError ModuleNotFoundError NameError None NotADirectoryError
NotImplemented NotImplementedError OSError OverflowError PendingDeprecationWarning
PermissionError ProcessLookupError PythonFinalizationError RecursionError ReferenceError
ResourceWarning RuntimeError RuntimeWarning StopAsyncIteration StopIteration SyntaxError
SyntaxWarning SystemError SystemExit TabError TimeoutError True TypeError UnboundLocalError
UnicodeDecodeError UnicodeEncodeError UnicodeError UnicodeTranslateError UnicodeWarning
UserWarning ValueError Warning ZeroDivisionError abs aiter all anext any ascii bin bool
breakpoint bytearray bytes callable chr classmethod compile complex copyright credits delattr
dict dir divmod enumerate eval exec exit filter float format frozenset getattr globals hasattr
hash help hex id input int isinstance issubclass iter len license list locals map max memoryview
min next object oct open ord pow print property quit range repr reversed round set setattr slice
sorted staticmethod str sum super tuple type vars zip
"""
BUILTINS: Final = frozenset(_BUILTINS.split())
"""Names that stand for something where nothing binds them."""


def docstring(node: ast.AST) -> ast.Constant | None:
    """The docstring with which the body of ``node`` begins."""
    match node:
        case ast.Module(body=body) | ast.ClassDef(body=body):
            pass
        case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body):
            pass
        case _:
            return None
    match body:
        case [ast.Expr(value=ast.Constant(value=str()) as found), *_]:
            return found
        case _:
            return None


def names_used(tree: ast.AST) -> set[str]:
    """Names that the code reads, writes, or says are of another scope."""
    found = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name):
                found.add(name)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                found.update(names)
    return found


def sees_names(tree: ast.AST) -> bool:
    """Whether the code may read how its own names are spelt, or its docstrings, or has a class that
    changes its names."""
    nodes = [*ast.walk(tree)]
    has_class = any(isinstance(node, ast.ClassDef) for node in nodes)
    if has_class and any(map(_is_mangled, {*bindings(tree), *names_used(tree)})):
        return True
    return sees(tree)


def _is_mangled(name: str) -> bool:
    """Whether Python gives ``name`` another form inside a class, or such a form has it."""
    return "__" in name.rstrip("_") and name.startswith("_") and not name.endswith("__")


def names_seen(tree: ast.AST) -> set[str]:
    """Names whose spelling counts: those of Python itself, of attributes, keywords and imports, in
    strings, what a class is called and holds, which its instances show, and what functions are
    called, where one may be shown."""
    found = set(BUILTINS)
    if shows_functions(tree, _own(tree)):
        found.update(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    dropped = {id(node) for node in map(docstring, ast.walk(tree)) if node is not None}
    for node in ast.walk(tree):
        match node:
            case ast.Constant() if id(node) in dropped:
                continue
            case ast.keyword(arg=str(name)) | ast.Attribute(attr=name):
                found.add(name)
            case ast.MatchClass(kwd_attrs=names):
                found.update(names)
            case ast.alias(name=name, asname=None):
                found.add(name.partition(".")[0])
            case ast.Constant(value=str(text)):
                found |= words_of(text)
            case ast.Constant(value=bytes(data)):
                found |= words_of(data.decode("latin-1"))
            case ast.ClassDef(name=name, body=body):
                found.add(name)
                found.update(name for part in body for name in _held(part))
    return found


def _own(tree: ast.AST) -> set[str]:
    """Names that the code gives itself; what it imports under its own name is not among them."""
    found = set[str]()
    for node in ast.walk(tree):
        if not isinstance(node, ast.alias) or node.asname not in (None, node.name):
            found.update(_bound_here(node))
    return found


def _held(node: ast.AST) -> Iterator[str]:
    """Names that are bound in the scope that ``node`` stands in, not in one inside it."""
    yield from _bound_here(node)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        return
    for child in ast.iter_child_nodes(node):
        yield from _held(child)


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
