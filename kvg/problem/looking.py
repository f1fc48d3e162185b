"""Whether a piece of Python may see how its own names are spelt.

What can't is listed here (modules, methods, places where a function may stand), and all else is
taken to see them: of code that is not known to be blind every name counts.
"""

from __future__ import annotations

import ast
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Final

_LOOKING = """
breakpoint compile delattr dir eval exec getattr globals hasattr help locals setattr vars
"""
LOOKING: Final = frozenset(_LOOKING.split())
"""Functions by which an expression sees names, or runs text."""

_ALSO_LOOKING: Final = frozenset({"open", "type"})
"""And by which a program does: it may read itself, or make a class whose names are data."""

_BASES = """
ArithmeticError AssertionError BaseException Exception IndexError KeyError LookupError RuntimeError
StopIteration TypeError ValueError ZeroDivisionError dict float frozenset int list object set str
tuple
"""
_PLAIN_BASES: Final = frozenset(_BASES.split())
"""Classes of Python's own that call what is derived from them by place, never by a keyword."""

_OPEN = "bisect cmath datetime decimal fractions heapq itertools math random re statistics"
_PARTS = """
__future__: annotations
collections: ChainMap Counter OrderedDict abc defaultdict deque namedtuple
copy: copy deepcopy
dataclasses: dataclass field
functools: cache cmp_to_key lru_cache partial reduce total_ordering
operator: add and_ eq floordiv ge gt itemgetter le lt mod mul ne neg or_ pow sub truediv xor
string: ascii_letters ascii_lowercase ascii_uppercase digits hexdigits octdigits punctuation
typing: Any Callable Dict FrozenSet Iterable Iterator List Mapping Optional Sequence Set Tuple Union
"""
_NAMES: Final[Mapping[str, frozenset[str] | None]] = {
    **dict.fromkeys(_OPEN.split()),
    **{
        name: frozenset(parts.split())
        for name, _, parts in (line.partition(": ") for line in _PARTS.strip().splitlines())
    },
}
"""Modules that show no name of who uses them but what a function or class is called, with what may
be taken of each: None for all that has no underscore before it."""

_WAYS = """
attrgetter bltns builtins codecs contextvars copyreg ctypes enum format_map functools importlib
inspect io locale methodcaller numbers operator os posix sys traceback types typing warnings weakref
"""
_WAYS_OUT: Final = frozenset(_WAYS.split())
"""Attributes by which a module leads to another, or that read attributes whose names are data."""

_METHODS = """
abs add and bool call contains delitem eq float floordiv ge getitem gt hash iadd index init
int invert isub iter le len lshift lt matmul mod mul ne neg next or pos post_init pow radd repr
reversed rmul round rshift rsub rtruediv setitem str sub truediv xor
"""
_BLIND_METHODS: Final = frozenset(f"__{name}__" for name in _METHODS.split())
"""Special methods that are called with what the code itself has made."""

_INNER: Final = ("co_", "gi_", "cr_", "ag_", "f_", "tb_")
"""How attributes of Python's own objects for code that runs begin."""
_INNER_IN_TEXT: Final = re.compile(r"\.(?:" + "|".join(_INNER) + ")")
_PART: Final = re.compile(r"[\w\x80-\U0010ffff]+")

_OF_ERRORS = """
crash crashed crashes error errors exception exceptions fail failed fails failure failures message
messages raise raised raises stderr trace traceback tracebacks traces uncaught
"""
_ERROR_WORDS: Final = frozenset(_OF_ERRORS.split())

_ASYNCHRONOUS: Final = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)

_WALKING = """
Counter all any bytes chain deque dict enumerate frozenset fsum islice list max min next pairwise
prod product set sorted sum tuple zip
"""
_WALKING_FUNCTIONS: Final = frozenset(_WALKING.split())
"""What walks over a generator that it is given first, and keeps it from sight."""
_WALKING_METHODS: Final = frozenset({"extend", "join", "update"})
_CALLING_FUNCTIONS: Final = frozenset({"filter", "map", "reduce"})
"""What only calls the function that it is given first."""
_KEYED: Final = frozenset({"groupby", "max", "min", "nlargest", "nsmallest", "sorted"})
"""What only calls the function that it is given as ``key``."""
_MEMORISING: Final = frozenset({"cache", "lru_cache"})
"""Decorators under which a function shows its name no more."""
_MAKES_FIELDS: Final = "namedtuple"


def words_of(text: str) -> frozenset[str]:
    """What in ``text`` could be a name, spelt as Python reads it."""
    parts = _PART.findall(unicodedata.normalize("NFKC", text))
    return frozenset(word for part in dict.fromkeys(parts) for word in _names_in(part))


def _names_in(part: str) -> Iterator[str]:
    """The longest names in ``part``. Python's letters are more than those of ``re``: a vowel sign
    goes on with a name, too."""
    word = ""
    for char in part:
        if f"a{char}".isidentifier() if word else char.isidentifier():
            word += char
        elif word:
            yield word
            word = ""
    if word:
        yield word


def asks_of_errors(words: Set[str]) -> bool:
    """Whether a wording of these ``words`` may ask for the text of an error that code ends with,
    which shows its names and its lines, whatever code it is."""
    return not _ERROR_WORDS.isdisjoint(word.casefold() for word in words)


def is_special(name: str) -> bool:
    """Whether ``name`` has two underscores at both ends."""
    return name.startswith("__") and name.endswith("__")


def sees(tree: ast.AST) -> bool:
    """Whether the code may read how its own names are spelt, or its docstrings.

    By a function that looks, a module that is not known or is a value, an attribute whose name is
    data, a name with two underscores at both ends, keywords made at run time, a class that a
    library calls, or the text of an error. Or it has names that aren't said: an import of all.
    """
    modules = dict(_modules(tree))
    nodes = [*ast.walk(tree)]
    named = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    plain = _plain_bases(nodes)
    for node in nodes:
        match node:
            case ast.Name(id=name) if name in modules and id(node) not in named:
                return True
            case ast.Attribute(attr=attr) if (module := _module_of(node, modules)) is not None:
                is_first = isinstance(node.value, ast.Name)
                if attr.startswith("_") or (is_first and not _is_blind(module, attr)):
                    return True
            case ast.ClassDef(bases=bases, keywords=keywords):
                named_bases = {base.id for base in bases if isinstance(base, ast.Name)}
                if keywords or len(named_bases) < len(bases) or not named_bases <= plain:
                    return True
        if _looks(node):
            return True
    return False


def _modules(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """What modules are called, and which they are."""
    for node in ast.walk(tree):
        for item in node.names if isinstance(node, ast.Import) else ():
            root = item.name.partition(".")[0]
            yield item.asname or root, root


def _module_of(node: ast.Attribute, modules: Mapping[str, str]) -> str | None:
    """The module that ``node`` is an attribute of, or of an attribute of it."""
    value = node.value
    while isinstance(value, ast.Attribute):
        value = value.value
    return modules.get(value.id) if isinstance(value, ast.Name) else None


def _plain_bases(nodes: Sequence[ast.AST]) -> set[str]:
    """The classes that no library calls: the code's own, and Python's under their names."""
    made = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
    others = {name for node in nodes for name in _given(node)}
    return (made | _PLAIN_BASES) - others


def _given(node: ast.AST) -> Iterator[str]:
    """Names that ``node`` gives to something else than a class."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.FunctionDef(name=name):
            yield name
        case ast.alias(name=name, asname=asname):
            yield asname or name
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
        case ast.MatchMapping(rest=str(name)):
            yield name
        case _:
            return


def _looks(node: ast.AST) -> bool:
    if getattr(node, "type_params", None) or type(node).__name__ == "TypeAlias":
        return True
    match node:
        case ast.Name(id=name):
            return name in LOOKING or name in _ALSO_LOOKING or is_special(name)
        case ast.Attribute(attr="format", value=value):
            return not (isinstance(value, ast.Constant) and isinstance(value.value, str))
        case ast.Attribute(attr="__init__"):
            return False
        case ast.Attribute(attr=name):
            return _is_way_out(name) or is_special(name) or name.startswith(_INNER)
        case ast.Constant(value=str(text)):
            return _INNER_IN_TEXT.search(text) is not None or any(map(is_special, words_of(text)))
        case ast.Import(names=aliases):
            return any(item.name.partition(".")[0] not in _NAMES for item in aliases)
        case ast.ImportFrom(level=0, module=str(module), names=aliases):
            root, _, inner = module.partition(".")
            return not all(_is_blind(root, inner or item.name) for item in aliases) or any(
                item.name == "*" or item.name.startswith("_") for item in aliases
            )
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
    known = _NAMES.get(module, frozenset())
    is_open = not name.startswith("_") and not _is_way_out(name)
    return is_open if known is None else name in known


def _is_spelt_out(value: ast.expr) -> bool:
    """Whether ``value`` is a dictionary of which the code says every key."""
    keys = value.keys if isinstance(value, ast.Dict) else [None]
    return all(isinstance(key, ast.Constant) for key in keys)


def shows_functions(tree: ast.AST, own: Set[str]) -> bool:
    """Whether what a function is called may be shown: by an object with fields, or by the function,
    or a function or generator made in it, where that is a value and not just called or walked over.

    ``own`` are the names that the code gives itself: it may call anything so.
    """
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    if not functions:
        return False
    if any(map(_has_fields, ast.walk(tree))):
        return True
    made = {node.name for node in functions}
    generating = {node.name for node in functions if _yields(node)}
    called, walked = set[int](), set[int]()
    for node in ast.walk(tree):
        called.update(map(id, _called_in(node, own)))
        walked.update(map(id, _walked_in(node, own)))
    for node, is_inside in _with_place(tree):
        match node:
            case ast.FunctionDef(decorator_list=decorators):
                is_shown = not all(_is_memorising(item, own) for item in decorators)
            case ast.Call(func=ast.Name(id=name)):
                is_shown = name in generating and id(node) not in walked
            case ast.Name(id=name, ctx=ast.Load()):
                is_shown = name in made and id(node) not in called
            case ast.Lambda():
                is_shown = is_inside and id(node) not in called
            case ast.GeneratorExp():
                is_shown = is_inside and id(node) not in walked
            case _:
                continue
        if is_shown:
            return True
    # What calls a generator function gets a generator, which it may show.
    return any(
        isinstance(node, ast.Name) and node.id in generating and id(node) in called
        for call in ast.walk(tree)
        for node in ast.iter_child_nodes(call)
        if not (isinstance(call, ast.Call) and node is call.func)
    )


def _has_fields(node: ast.AST) -> bool:
    """Whether attributes are the code's own from here on, which any function may stand in."""
    match node:
        case ast.ClassDef() | ast.Attribute(ctx=ast.Store()):
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
            return name == _MAKES_FIELDS
        case _:
            return False


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


def _called_in(node: ast.AST, own: Set[str]) -> Iterator[ast.AST]:
    """What in ``node`` is called, and nothing else."""
    match node:
        case ast.Call(func=function, args=arguments, keywords=keywords):
            yield function
            if _own_name(function, own) in _CALLING_FUNCTIONS:
                yield from arguments[:1]
            is_keyed = _own_name(function, own) in _KEYED or _method(function) == "sort"
            yield from (item.value for item in keywords if is_keyed and item.arg == "key")
        case ast.FunctionDef(decorator_list=decorators):
            yield from decorators
        case _:
            return


def _walked_in(node: ast.AST, own: Set[str]) -> Iterator[ast.AST]:
    """What in ``node`` is walked over, and nothing else."""
    match node:
        case ast.Call(func=function, args=arguments):
            if _own_name(function, own) in _WALKING_FUNCTIONS:
                yield from arguments[:1]
            elif _own_name(function, own) in _CALLING_FUNCTIONS:
                yield from arguments[1:2]
            elif _method(function) in _WALKING_METHODS:
                yield from arguments[:1]
        case ast.For(iter=value) | ast.comprehension(iter=value):
            yield value
        case ast.Compare(ops=ops, comparators=values):
            pairs = zip(ops, values, strict=True)
            yield from (value for op, value in pairs if isinstance(op, ast.In | ast.NotIn))
        case ast.YieldFrom(value=value) | ast.Starred(value=value):
            yield value
        case _:
            return


def _own_name(function: ast.expr, own: Set[str]) -> str | None:
    """What Python's own ``function``, or one that is imported under its name, is called."""
    match function:
        case ast.Name(id=name) if name not in own:
            return name
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            return name if module in _NAMES and module not in own else None
        case _:
            return None


def _method(function: ast.expr) -> str | None:
    return function.attr if isinstance(function, ast.Attribute) else None


def _is_memorising(decorator: ast.expr, own: Set[str]) -> bool:
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return _own_name(function, own) in _MEMORISING
