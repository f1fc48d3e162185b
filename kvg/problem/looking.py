"""Whether a piece of Python may see how its own names are spelt.

What can't is listed here (modules, methods, places where a function may stand), and all else is
taken to see them: of code that is not known to be blind every name counts.
"""

from __future__ import annotations

import ast
import re
import unicodedata
from collections.abc import Iterator, Set
from typing import Final

_LOOKING = """
breakpoint compile delattr dir eval exec getattr globals hasattr help locals open setattr vars
"""
LOOKING: Final = frozenset(_LOOKING.split())
"""Functions by which code sees names, or runs text."""

_BLIND = """
array bisect calendar cmath collections copy datetime decimal fractions functools hashlib heapq
itertools json math random re statistics string struct textwrap time unicodedata
"""
_BLIND_MODULES: Final = frozenset(_BLIND.split())
"""Modules that show no name of who calls them, but for what a function or class calls itself."""

_TYPES = """
Any Callable Collection DefaultDict Deque Dict Final FrozenSet Generator Iterable Iterator List
Literal Mapping MutableMapping MutableSequence Optional Sequence Set Tuple TypeAlias Union
"""
_TYPING: Final = frozenset(_TYPES.split())
"""Of ``typing``: what names types."""

_WAYS = """
attrgetter bltns builtins codecs contextvars copyreg ctypes enum format_map Formatter functools
get_type_hints importlib inspect io locale methodcaller numbers operator os posix sys traceback
types typing warnings weakref
"""
_WAYS_OUT: Final = frozenset(_WAYS.split())
"""Attributes by which a module leads to another, or that read attributes whose names are data."""

_METHODS = """
abs add and bool call contains delitem enter eq float floordiv ge getitem gt hash iadd index init
int invert isub iter le len lshift lt matmul mod mul ne neg next or pos post_init pow radd repr
reversed rmul round rshift rsub rtruediv setitem str sub truediv xor
"""
_BLIND_METHODS: Final = frozenset(f"__{name}__" for name in _METHODS.split())
"""Special methods that are called with what the code itself has made."""

_INNER: Final = ("co_", "gi_", "cr_", "ag_", "f_", "tb_")
"""How attributes of Python's own objects for code that runs begin."""
_INNER_IN_TEXT: Final = re.compile(r"\.(?:" + "|".join(_INNER) + ")")
_WORD: Final = re.compile(r"[^\W\d]\w*")

_ASYNCHRONOUS: Final = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)

_FIRST = "all any deque dict enumerate extend fromkeys frozenset join list max mean min next prod"
_FIRST_TAKEN: Final = frozenset(f"{_FIRST} reduce set sorted sum tuple update".split())
_EVERY = "accumulate chain dropwhile filter filterfalse groupby map starmap takewhile zip"
_EVERY_TAKEN: Final = frozenset(_EVERY.split())
"""What only calls or walks over functions and generators that it is given: the first, or all."""
_KEY: Final = "key"
_PLAIN_DECORATORS: Final = frozenset(
    {"staticmethod", "classmethod", "property", "cache", "lru_cache"}
)


def words_of(text: str) -> frozenset[str]:
    """What in ``text`` could be a name, spelt as Python reads it."""
    return frozenset(_WORD.findall(unicodedata.normalize("NFKC", text)))


def is_special(name: str) -> bool:
    """Whether ``name`` has two underscores at both ends."""
    return name.startswith("__") and name.endswith("__")


def looks(node: ast.AST) -> bool:
    """Whether code with ``node`` may read how its own names are spelt, or its docstrings.

    By a function that looks, a module that is not known, an attribute whose name is data, a name
    with two underscores at both ends, keywords made at run time, or the text of an error. Or it has
    names that aren't said: an import of all.
    """
    if getattr(node, "type_params", None) or type(node).__name__ == "TypeAlias":
        return True
    match node:
        case ast.Name(id=name):
            return name in LOOKING or is_special(name)
        case ast.Attribute(attr="format", value=value):
            return not (isinstance(value, ast.Constant) and isinstance(value.value, str))
        case ast.Attribute(attr=name):
            return _is_way_out(name) or is_special(name) or name.startswith(_INNER)
        case ast.Constant(value=str(text)):
            return _INNER_IN_TEXT.search(text) is not None or any(map(is_special, words_of(text)))
        case ast.Import(names=aliases):
            return any(item.name.partition(".")[0] not in _BLIND_MODULES for item in aliases)
        case ast.ImportFrom(level=0, module=str(module), names=aliases):
            return not all(_is_blind(module.partition(".")[0], item.name) for item in aliases)
        case ast.ImportFrom():
            return True
        case ast.ExceptHandler(name=name):
            return name is not None
        case ast.keyword(arg=None, value=value):
            return not _is_spelt_out(value)
        case ast.FunctionDef(name=name):
            return is_special(name) and name not in _BLIND_METHODS
        case _:
            return isinstance(node, _ASYNCHRONOUS)


def _is_way_out(name: str) -> bool:
    return name.lstrip("_") in _WAYS_OUT


def _is_blind(module: str, name: str) -> bool:
    if module == "typing":
        return name in _TYPING
    is_own = not name.startswith("_") and not _is_way_out(name)
    return module in _BLIND_MODULES and is_own and name != "*"


def _is_spelt_out(value: ast.expr) -> bool:
    """Whether ``value`` is a dictionary of which the code says every key."""
    keys = value.keys if isinstance(value, ast.Dict) else [None]
    return all(isinstance(key, ast.Constant) for key in keys)


def shows_functions(tree: ast.AST, own: Set[str]) -> bool:
    """Whether what a function is called may be shown: by a class, or by the function, or a function
    or generator made in it, where that is a value and not just called or walked over.

    ``own`` are the names that the code gives itself: it may call anything so.
    """
    made = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    if not made:
        return False
    generating = {name for name, node in _functions(tree) if _yields(node)}
    taken = {id(part) for node in ast.walk(tree) for part in _taken(node, own)}
    for node, is_inside in _with_place(tree):
        match node:
            case ast.ClassDef():
                return True
            case ast.FunctionDef(decorator_list=decorators):
                is_shown = any(id(item) not in taken for item in decorators)
                if is_shown:
                    return True
                continue
            case ast.Name(id=name, ctx=ast.Load()):
                is_shown = name in made
            case ast.Lambda() | ast.GeneratorExp():
                is_shown = is_inside
            case ast.Call(func=ast.Name(id=name)):
                is_shown = name in generating
            case _:
                continue
        if is_shown and id(node) not in taken:
            return True
    return False


def _functions(tree: ast.AST) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node.name, node


def _yields(function: ast.FunctionDef) -> bool:
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function))


def _with_place(tree: ast.AST) -> Iterator[tuple[ast.AST, bool]]:
    """Each node, and whether it stands in a function."""
    waiting = [(tree, False)]
    while waiting:
        node, is_inside = waiting.pop()
        yield node, is_inside
        is_inside = is_inside or isinstance(node, ast.FunctionDef)
        waiting += [(child, is_inside) for child in ast.iter_child_nodes(node)]


def _taken(node: ast.AST, own: Set[str]) -> Iterator[ast.AST]:
    """What in ``node`` is only called, or walked over."""
    match node:
        case ast.Call(func=function, args=arguments, keywords=keywords):
            yield function
            name = _called(function, own)
            if name in _EVERY_TAKEN:
                yield from arguments
            elif name in _FIRST_TAKEN:
                yield from arguments[:1]
                yield from (item.value for item in keywords if item.arg == _KEY)
        case ast.For(iter=value) | ast.comprehension(iter=value):
            yield value
        case ast.YieldFrom(value=value) | ast.Starred(value=value):
            yield value
        case ast.FunctionDef(decorator_list=decorators):
            for item in decorators:
                if _called(item, own) in _PLAIN_DECORATORS:
                    yield item
        case _:
            return


def _called(function: ast.expr, own: Set[str]) -> str | None:
    """What ``function`` is called where it is Python's own, or of a module or object."""
    match function:
        case ast.Name(id=name) if name not in own:
            return name
        case ast.Attribute(attr=name):
            return name
        case ast.Call(func=inner):
            return _called(inner, own)
        case _:
            return None
