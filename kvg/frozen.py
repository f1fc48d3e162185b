"""``frozen``: ``@dataclass(frozen=True, slots=True)`` at a sixth of its price.

``dataclasses`` writes the source of six methods for each class and compiles it, which makes up a
third of a short command. Here the fields still come from ``dataclasses``, by its public interface
(so ``fields``, ``replace``, ``asdict``, ``field`` and ``match`` work); the methods are closures
over the slots. What differs:

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


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def frozen(cls: type[_T]) -> type[_T]:
    """Make ``cls`` an immutable class with slots, ordered fields, equality, hash and repr.

    ``__post_init__`` is called last when there is one, and may use ``object.__setattr__``. A method
    that the class has itself is kept. Raises ``TypeError`` for what is not supported.
    """
    own = dict(cls.__dict__)
    made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    fields = dataclasses.fields(made)  # type: ignore[arg-type]
    _check(cls, fields)
    methods = _methods(made, fields)
    if own.get("__hash__") is None:  # None is what Python puts beside an __eq__
        own.pop("__hash__", None)
    for name, method in methods.items():
        if name not in own:
            setattr(made, name, method)
    return made


def _check(cls: type, fields: Sequence[Field[object]]) -> None:
    name = cls.__qualname__
    if any(hasattr(base, "__dataclass_fields__") for base in cls.__mro__[1:]):
        raise TypeError(f"{name}: a base has fields of its own")
    if not all(field.init and not field.kw_only for field in fields):
        raise TypeError(f"{name}: every field must be a plain parameter")
    if any("InitVar" in str(said) for said in inspect.get_annotations(cls).values()):
        raise TypeError(f"{name}: InitVar is not supported")
    optional = [_default(field) is not None for field in fields]
    if optional != sorted(optional):
        raise TypeError(f"{name}: a field without a default follows one with a default")
    if "__setattr__" in cls.__dict__ or "__delattr__" in cls.__dict__:
        raise TypeError(f"{name}: has a way of its own to set attributes")


def _default(field: Field[object]) -> _Default | None:
    if field.default_factory is not MISSING:
        return field.default_factory
    value = field.default
    return None if value is MISSING else lambda: value


def _methods(cls: type, fields: Sequence[Field[object]]) -> Mapping[str, object]:
    names = tuple(field.name for field in fields)
    compared = _getter([field.name for field in fields if field.compare])
    hashed = _getter([f.name for f in fields if (f.compare if f.hash is None else f.hash)])
    shown = tuple(field.name for field in fields if field.repr)
    every = _getter(names)
    put = tuple(getattr(cls, name).__set__ for name in names)

    def __eq__(self: object, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return compared(self) == compared(other)

    def __hash__(self: object) -> int:
        return hash(hashed(self))

    def __repr__(self: object) -> str:
        inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{self.__class__.__qualname__}({inside})"

    def __setattr__(self: object, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    def __delattr__(self: object, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        object.__delattr__(self, name)

    def __getstate__(self: object) -> list[object]:
        return list(every(self))

    def __setstate__(self: object, state: Sequence[object]) -> None:
        for set_value, value in zip(put, state, strict=True):
            set_value(self, value)

    made = (__eq__, __hash__, __repr__, __setattr__, __delattr__, __getstate__, __setstate__)
    methods: dict[str, object] = {method.__name__: method for method in made}
    methods["__init__"] = _init(cls, fields, put)
    methods["__signature__"] = _Signature(fields)
    return methods


def _getter(names: Sequence[str]) -> Callable[[object], tuple[object, ...]]:
    """The values of the attributes ``names`` as a tuple, whatever their number."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _init(
    cls: type, fields: Sequence[Field[object]], put: Sequence[Callable[[object, object], None]]
) -> Callable[..., None]:
    defaults = {field.name: _default(field) for field in fields}
    n, has_more = len(fields), hasattr(cls, "__post_init__")

    def __init__(self: object, /, *args: object, **kwargs: object) -> None:
        values: Sequence[object] = args
        if kwargs or len(args) != n:
            values = _bind(cls.__qualname__, defaults, args, kwargs)
        for set_value, value in zip(put, values, strict=True):
            set_value(self, value)
        if has_more:
            self.__post_init__()  # type: ignore[attr-defined]

    return __init__


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


class _Signature:
    """The parameters as ``inspect`` shows them, made when they are asked for."""

    def __init__(self, fields: Sequence[Field[object]]) -> None:
        self._fields = fields

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        parameter = inspect.Parameter

        def default(field: Field[object]) -> object:
            made = field.default_factory is not MISSING
            value = field.default_factory if made else field.default
            return parameter.empty if value is MISSING else value

        kind = parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature(
            [
                parameter(field.name, kind, default=default(field), annotation=field.type)
                for field in self._fields
            ]
        )
