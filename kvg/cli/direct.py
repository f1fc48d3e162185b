"""A command line that says plainly what it says, read without the parser.

To import the parser takes longer than most commands do. What is not plain is left to it: a word
or an option that nobody knows, a value that does not fit, one that is missing, a request for help.
Of what is plain both make the same call.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Union, cast, get_args, get_origin

from kvg.cli.coercion import check_option_text, convert
from kvg.cli.declare import Argument, Context, Option
from kvg.cli.globals import declare_globals
from kvg.cli.table import BY_NAME, Verb
from kvg.frozen import frozen

if TYPE_CHECKING:
    from kvg.cli.invocation import Globals

_REQUIRED = object()


class Call:
    """One verb and the values of its parameters; it stands where the parser's context would."""

    def __init__(self, verb: Verb, path: tuple[str, ...], given: Globals) -> None:
        self.obj: object = given
        self.path = path
        self.verb = verb
        self.function: Callable[..., object] = _functions(verb)[path[-1]]
        self.values: dict[str, object] = {}

    @property
    def command(self) -> Call:
        return self

    @property
    def has_dry_run(self) -> bool:
        """Whether this verb can show what it would do."""
        return self.path[-1] in self.verb.dry_run

    def run(self) -> object:
        """What the verb returns."""
        from kvg.cli.invocation import invocation

        invocation(self).given.shows = self.verb.shows
        return self.function(**self.values)


def read(argv: Sequence[str], given: Globals) -> Call | None:
    """The call that ``argv`` asks for, its global options noted in ``given``; None, and nothing
    noted, where it is not plain."""
    try:
        return _Reading(argv).call(given)
    except _NotPlain:
        return None


class _NotPlain(Exception):
    """Something that the parser has to look at."""


@frozen
class _Param:
    """One parameter of a verb: its type without None and ``list``, and how it is given."""

    name: str
    kind: object
    is_list: bool
    declared: Option | Argument
    default: object

    def value(self, text: str) -> object:
        if self.kind is str and isinstance(self.declared, Option):
            check_option_text(text, self.declared.names[0])
        try:
            return convert(self.kind, text, self.declared.min, self.declared.max)
        except ValueError:
            raise _NotPlain from None


class _Reading:
    """A walk over the words of one command line."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._left = list(reversed(argv))
        self._noted: list[tuple[str, object]] = []
        self._globals = _by_name(_params(declare_globals))

    def call(self, given: Globals) -> Call:
        verb = BY_NAME.get(self._word())
        if verb is None:
            raise _NotPlain
        path = (verb.name, self._word()) if verb.subverbs else (verb.name,)
        if len(path) == 2 and path[1] not in dict(verb.subverbs):
            raise _NotPlain
        call = Call(verb, path, given)
        params = _params(call.function)
        call.values.update(self._values(call, params))
        for name, value in self._noted:
            given.note(name, value)
        for param in params:
            if param.declared.callback is not None:
                call.values[param.name] = param.declared.callback(call.values[param.name])
        return call

    def _word(self) -> str:
        """The next word that is no option; the global ones before it are noted."""
        while True:
            word = self._next()
            if not word.startswith("-"):
                return word
            self._take(word, {})

    def _next(self) -> str:
        if not self._left:
            raise _NotPlain
        return self._left.pop()

    def _values(self, call: Call, params: Sequence[_Param]) -> dict[str, object]:
        options, words = _by_name(params), list[str]()
        found: dict[str, object] = dict.fromkeys(_contexts(call.function), call)
        lists: dict[str, list[object]] = {p.name: [] for p in params if p.is_list}
        while self._left:
            word = self._next()
            if word == "--":
                words += reversed(self._left)
                break
            if word == "-" or not word.startswith("-"):
                words.append(word)
                continue
            taken = self._take(word, options)
            if taken is not None and taken[0].is_list:
                lists[taken[0].name].append(taken[1])
            elif taken is not None:
                found[taken[0].name] = taken[1]
        arguments = [p for p in params if isinstance(p.declared, Argument)]
        _place(arguments, words, found, lists)
        for param in params:
            found.setdefault(param.name, lists.get(param.name) or param.default)
            if found[param.name] is _REQUIRED:
                raise _NotPlain
        return found

    def _take(
        self, word: str, options: Mapping[str, tuple[_Param, bool]]
    ) -> tuple[_Param, object] | None:
        """The option that ``word`` begins and its value; None of a global one, which is noted."""
        name, has_value, text = word.partition("=")
        is_global = name in self._globals
        param, is_yes = self._globals[name] if is_global else options.get(name, (None, False))
        if param is None or (has_value and not name.startswith("--")):
            raise _NotPlain
        if param.kind is bool:
            if has_value:
                raise _NotPlain
            value: object = is_yes
        else:
            text = text if has_value else self._next()
            if not has_value and text.startswith("-") and text != "-":
                raise _NotPlain
            value = param.value(text)
        if not is_global:
            return param, value
        self._noted.append((param.name, [value] if param.is_list else value))
        return None


def _place(
    arguments: Sequence[_Param],
    words: Sequence[str],
    found: dict[str, object],
    lists: Mapping[str, list[object]],
) -> None:
    """Give each of ``arguments`` its word, the last one all that are left where it is a list."""
    if any(param.is_list for param in arguments[:-1]):
        raise _NotPlain
    for index, word in enumerate(words):
        param = arguments[min(index, len(arguments) - 1)] if arguments else None
        if param is None or (param.name in found and not param.is_list):
            raise _NotPlain
        if param.is_list:
            lists[param.name].append(param.value(word))
        else:
            found[param.name] = param.value(word)


def _functions(verb: Verb) -> Mapping[str, Callable[..., object]]:
    module = importlib.import_module(f"kvg.cli.verbs.{verb.module}")
    return cast("Mapping[str, Callable[..., object]]", module.COMMANDS)


def _params(function: Callable[..., object]) -> list[_Param]:
    """What ``function`` declares, in its order. The annotations must be values, not text."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    known = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
    return [
        _param(name, hint, known.get(name, _REQUIRED))
        for name, hint in _hints(function)
        if hint is not Context
    ]


def _contexts(function: Callable[..., object]) -> list[str]:
    return [name for name, hint in _hints(function) if hint is Context]


def _hints(function: Callable[..., object]) -> Iterable[tuple[str, object]]:
    return ((name, hint) for name, hint in function.__annotations__.items() if name != "return")


def _param(name: str, hint: object, default: object) -> _Param:
    kind, declared = get_args(hint)
    if get_origin(kind) in (Union, UnionType):
        (kind,) = (part for part in get_args(kind) if part is not NoneType)
    is_list = get_origin(kind) is list
    return _Param(name, get_args(kind)[0] if is_list else kind, is_list, declared, default)


def _by_name(params: Iterable[_Param]) -> dict[str, tuple[_Param, bool]]:
    """Options by each of their names; of a pair of flags, whether it is the one that says yes."""
    return dict(chain.from_iterable(_names(param) for param in params))


def _names(param: _Param) -> Iterable[tuple[str, tuple[_Param, bool]]]:
    if isinstance(param.declared, Option):
        for names in param.declared.names:
            yes, _, no = names.partition("/")
            yield yes, (param, True)
            if no:
                yield no, (param, False)
