"""``frozen``: ``@dataclass(frozen=True, slots=True)`` at a fifteenth of its price.

``dataclasses`` writes the source of six methods for each class and compiles it, which makes up a
third of a short command. Here the methods are closures over the slots, and what ``dataclasses``
itself knows of a class is made when it is first asked (``fields``, ``replace``, ``asdict`` and so
on work; so do ``field``, ``match`` and ``copy``). What differs:

- fields that ``__init__`` does not take, keyword-only ones, ``InitVar`` and a base with fields of
  its own are refused when the class is made;
- ``__doc__`` stays empty where a class has none, and ``repr`` does not look out for a loop.
"""

from __future__ import annotations

import dataclasses
import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError
from typing import TypeVar, dataclass_transform

_T = TypeVar("_T")
_Default = Callable[[], object]
_FIELDS = "__dataclass_fields__"


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def frozen(cls: type[_T]) -> type[_T]:
    """Make ``cls`` an immutable class with slots, ordered fields, equality, hash and repr.

    ``__post_init__`` is called last when there is one, and may use ``object.__setattr__``. A method
    that the class has itself is kept. Raises ``TypeError`` for what is not supported.
    """
    own = dict(cls.__dict__)
    fields = [_Known(name, own.pop(name, MISSING)) for name in _names(cls)]
    _check(cls, fields)
    for unwanted in ("__dict__", "__weakref__"):
        own.pop(unwanted, None)
    if own.get("__hash__") is None:  # None is what Python puts beside an __eq__
        own.pop("__hash__", None)
    names = tuple(field.name for field in fields)
    made = _Made()
    own = {
        **_methods(fields, names, made, has_more=hasattr(cls, "__post_init__")),
        _FIELDS: _Fields(cls),
        "__match_args__": names,
        "__signature__": _Signature(fields, cls),
        **own,
        "__qualname__": cls.__qualname__,
        "__slots__": names,
    }
    metaclass: type = type(cls)
    found: type[_T] = metaclass(cls.__name__, cls.__bases__, own)
    made.kind = found
    made.put = tuple(found.__dict__[name].__set__ for name in names)
    return found


class _Made:
    """What its methods need to know of a class that is made after them."""

    kind: type
    put: Sequence[Callable[[object, object], None]]


class _Known:
    """What is known of a field: its default as a function, None where there is none."""

    __slots__ = ("default", "is_compared", "is_hashed", "is_shown", "name")

    def __init__(self, name: str, given: object) -> None:
        self.name = name
        self.default: _Default | None
        self.is_compared = self.is_hashed = self.is_shown = True
        if isinstance(given, Field):
            self.is_compared, self.is_shown = given.compare, given.repr
            self.is_hashed = given.compare if given.hash is None else given.hash
            if not given.init or given.kw_only is True:
                raise TypeError(f"{name}: every field must be a plain parameter")
            factory = given.default_factory
            self.default = _constant(given.default) if factory is MISSING else factory
        else:
            self.default = _constant(given)


def _constant(value: object) -> _Default | None:
    if value is MISSING:
        return None
    if value.__class__.__hash__ is None:
        raise ValueError(f"mutable default {type(value)}: use default_factory")
    return lambda: value


def _names(cls: type) -> list[str]:
    """The fields in order: what is annotated, but for ``ClassVar``."""
    names = []
    for name, annotation in inspect.get_annotations(cls).items():
        said = annotation if isinstance(annotation, str) else repr(annotation)
        if "InitVar" in said or "KW_ONLY" in said:
            raise TypeError(f"{cls.__qualname__}: {said} is not supported")
        if not said.startswith(("ClassVar", "typing.ClassVar")):
            names.append(name)
    return names


def _check(cls: type, fields: Sequence[_Known]) -> None:
    if any(hasattr(base, _FIELDS) for base in cls.__mro__[1:]):
        raise TypeError(f"{cls.__qualname__}: a base has fields of its own")
    optional = [field.default is not None for field in fields]
    if optional != sorted(optional):
        raise TypeError(f"{cls.__qualname__}: a field without a default follows one with a default")
    if not cls.__dict__.keys().isdisjoint(("__setattr__", "__delattr__", "__slots__")):
        raise TypeError(f"{cls.__qualname__}: has a way of its own to keep attributes")


def _methods(
    fields: Sequence[_Known], names: Sequence[str], made: _Made, *, has_more: bool
) -> dict[str, object]:
    compared = _getter([field.name for field in fields if field.is_compared])
    hashed = _getter([field.name for field in fields if field.is_hashed])
    defaults = {field.name: field.default for field in fields}
    n = len(fields)

    def __init__(self: object, /, *args: object, **kwargs: object) -> None:
        values: Sequence[object] = args
        if kwargs or len(args) != n:
            values = _bind(made.kind.__qualname__, defaults, args, kwargs)
        for set_value, value in zip(made.put, values, strict=True):
            set_value(self, value)
        if has_more:
            self.__post_init__()  # type: ignore[attr-defined]

    def __eq__(self: object, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return compared(self) == compared(other)

    def __hash__(self: object) -> int:
        return hash(hashed(self))

    def __repr__(self: object) -> str:
        shown = [field.name for field in fields if field.is_shown]
        inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{self.__class__.__qualname__}({inside})"

    def __setattr__(self: object, name: str, value: object) -> None:
        if type(self) is made.kind or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    def __delattr__(self: object, name: str) -> None:
        if type(self) is made.kind or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        object.__delattr__(self, name)

    def __getstate__(self: object) -> list[object]:
        return [getattr(self, name) for name in names]

    def __setstate__(self: object, state: Sequence[object]) -> None:
        for set_value, value in zip(made.put, state, strict=True):
            set_value(self, value)

    return {
        "__init__": __init__,
        "__eq__": __eq__,
        "__hash__": __hash__,
        "__repr__": __repr__,
        "__setattr__": __setattr__,
        "__delattr__": __delattr__,
        "__getstate__": __getstate__,
        "__setstate__": __setstate__,
    }


def _getter(names: Sequence[str]) -> Callable[[object], tuple[object, ...]]:
    """The values of the attributes ``names`` as a tuple, whatever their number."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _bind(
    name: str,
    defaults: Mapping[str, _Default | None],
    args: Sequence[object],
    kwargs: dict[str, object],
) -> list[object]:
    """One value for each field; uses up ``kwargs``. Raises ``TypeError`` as any function does."""
    if len(args) > len(defaults):
        raise TypeError(f"{name}() takes {len(defaults)} arguments but {len(args)} were given")
    values = list(args)
    for field, default in list(defaults.items())[len(args) :]:
        if field in kwargs:
            values.append(kwargs.pop(field))
        elif default is not None:
            values.append(default())
        else:
            raise TypeError(f"{name}() missing a required argument: {field!r}")
    for wrong in kwargs:
        said = "multiple values for" if wrong in defaults else "an unexpected"
        raise TypeError(f"{name}() got {said} argument {wrong!r}")
    return values


class _Fields:
    """``__dataclass_fields__``, made from the class as it was written when it is asked for."""

    def __init__(self, written: type) -> None:
        self._written = written
        self._found: dict[str, Field[object]] | None = None

    def __get__(self, instance: object, owner: type) -> dict[str, Field[object]]:
        if self._found is None:
            known: type = dataclasses.dataclass(init=False, repr=False, eq=False)(self._written)
            self._found = dict(getattr(known, _FIELDS))
        return self._found


class _Signature:
    """The parameters as ``inspect`` shows them, made when they are asked for."""

    def __init__(self, fields: Sequence[_Known], written: type) -> None:
        self._fields = fields
        self._written = written

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        parameter, annotations = inspect.Parameter, inspect.get_annotations(self._written)
        return inspect.Signature(
            [
                parameter(
                    field.name,
                    parameter.POSITIONAL_OR_KEYWORD,
                    default=parameter.empty if field.default is None else field.default(),
                    annotation=annotations[field.name],
                )
                for field in self._fields
            ]
        )
