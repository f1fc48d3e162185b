"""``frozen`` against ``dataclass(frozen=True, slots=True)``, feature by feature."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import FrozenInstanceError, InitVar, dataclass, field
from typing import Any, ClassVar

import pytest

from kvg.frozen import frozen

Make = Callable[[type], Any]

real: Make = dataclass(frozen=True, slots=True)
MAKERS = pytest.mark.parametrize("make", [real, frozen], ids=["dataclass", "frozen"])


def make_point(make: Make) -> Any:
    @make
    class Point:
        """A point."""

        type: ClassVar[str] = "point"
        x: int
        y: int = 2
        note: str = field(default="", compare=False, repr=False)
        tags: dict[str, int] = field(default_factory=dict, hash=False)

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("x")
            object.__setattr__(self, "y", self.y * 1)

        @property
        def total(self) -> int:
            return self.x + self.y

    return Point


@MAKERS
def test_init(make: Make) -> None:
    point = make_point(make)
    for made in (point(1), point(1, 2), point(x=1, y=2), point(1, y=2, tags={}), point(1, 2, "n")):
        assert (made.x, made.y, made.total, made.tags, made.type) == (1, 2, 3, {}, "point")
    assert point(1).tags is not point(1).tags
    with pytest.raises(ValueError):
        point(-1)


@MAKERS
@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ((), {}, "missing"),
        ((), {"y": 1}, "missing"),
        ((1, 2, "", {}, 5), {}, "were given"),
        ((1,), {"z": 1}, "unexpected"),
        ((1,), {"x": 1}, "multiple values"),
        ((1,), {"type": "a"}, "unexpected"),
    ],
)
def test_init_refuses(
    make: Make, args: tuple[object, ...], kwargs: dict[str, object], said: str
) -> None:
    with pytest.raises(TypeError, match=said):
        make_point(make)(*args, **kwargs)


@MAKERS
def test_equality_and_hash(make: Make) -> None:
    point, other = make_point(make), make_point(make)
    assert point(1) == point(1, note="not compared")
    assert point(1) != point(2)
    assert point(1) != point(1, tags={"a": 1})
    assert point(1) != other(1)
    assert point(1) != (1, 2, {})
    assert point(1).__eq__(1) is NotImplemented
    assert hash(point(1)) == hash(point(1, tags={"a": 1})) == hash((1, 2))
    with pytest.raises(TypeError):
        point(1) < point(2)  # noqa: B015


@MAKERS
def test_repr(make: Make) -> None:
    shown = repr(make_point(make)(1))
    assert shown == "make_point.<locals>.Point(x=1, y=2, tags={})"


@MAKERS
def test_frozen_with_slots(make: Make) -> None:
    point = make_point(make)(1)
    for name in ("x", "type", "new") if make is frozen else ("x",):  # 3.11 fails for the others
        with pytest.raises(FrozenInstanceError, match=f"cannot assign to field '{name}'"):
            setattr(point, name, 3)
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    assert not hasattr(point, "__dict__")
    assert type(point).__slots__ == ("x", "y", "note", "tags")


@MAKERS
def test_functions_of_dataclasses(make: Make) -> None:
    point = make_point(make)
    assert dataclasses.is_dataclass(point)
    assert [item.name for item in dataclasses.fields(point)] == ["x", "y", "note", "tags"]
    assert dataclasses.replace(point(1), y=5) == point(1, 5)
    assert dataclasses.asdict(point(1)) == {"x": 1, "y": 2, "note": "", "tags": {}}
    assert dataclasses.astuple(point(1)) == (1, 2, "", {})
    with pytest.raises(ValueError):
        dataclasses.replace(point(1), x=-1)


@MAKERS
def test_match_copy_and_names(make: Make) -> None:
    point = make_point(make)
    match point(1, 7):
        case point(x, y):
            assert (x, y) == (1, 7)
        case _:
            pytest.fail("no match")
    made = point(1, tags={"a": 1})
    assert copy.copy(made) == made == copy.deepcopy(made)
    assert copy.copy(made).tags is made.tags
    assert copy.deepcopy(made).tags is not made.tags
    assert (point.__name__, point.__qualname__) == ("Point", "make_point.<locals>.Point")
    assert (point.__doc__, point.__module__) == ("A point.", __name__)


def test_signatures_agree() -> None:
    ours = inspect.signature(make_point(frozen)).parameters
    theirs = inspect.signature(make_point(real)).parameters
    assert [(p.name, p.kind, p.annotation) for p in ours.values()] == [
        (p.name, p.kind, p.annotation) for p in theirs.values()
    ]
    assert [ours[name].default for name in ("x", "y")] == [inspect.Parameter.empty, 2]


@MAKERS
def test_own_methods_are_kept(make: Make) -> None:
    @make
    class Named:
        """With methods of its own."""

        name: str
        size: int = 0

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Named) and other.name == self.name

        def __repr__(self) -> str:
            return f"<{self.name}>"

    assert Named("a", 1) == Named("a", 2)
    assert repr(Named("a")) == "<a>"
    assert hash(Named("a", 1)) == hash(("a", 1))

    @make
    class Hashed:
        """With a hash of its own."""

        name: str

        def __hash__(self) -> int:
            return 7

    assert hash(Hashed("a")) == 7


@MAKERS
def test_few_fields_and_bases(make: Make) -> None:
    class Base:
        """What records have."""

        __slots__ = ()

        @property
        def code(self) -> int:
            return 3

    @make
    class Empty(Base):
        """No field."""

    @make
    class Single(Base):
        """One field."""

        value: int

    assert Empty() == Empty() and hash(Empty()) == hash(())
    assert hash(Single(5)) == hash((5,))
    assert Single(5).code == Empty().code == 3
    assert repr(Empty()).endswith("Empty()")


def test_a_subclass_may_have_attributes() -> None:
    point = make_point(frozen)

    class Special(point):  # type: ignore[misc]
        """Not frozen beyond the fields."""

    special = Special(1)
    special.extra = 1
    with pytest.raises(FrozenInstanceError):
        special.x = 2
    assert special != point(1)


@MAKERS
def test_refused_by_both(make: Make) -> None:
    class Mutable:
        """A default that instances would share."""

        x: list[int] = []  # noqa: RUF012

    class Order:
        """A field without a default comes last."""

        x: int = 1
        y: int

    class Own:
        """Sets attributes its own way."""

        x: int

        def __setattr__(self, name: str, value: object) -> None: ...

    for kind, error in ((Mutable, ValueError), (Order, TypeError), (Own, TypeError)):
        with pytest.raises(error):
            make(kind)


def test_refused_by_frozen_alone() -> None:
    class Init:
        """A parameter that is no field."""

        x: InitVar[int]

    class Later:
        """A field that is no parameter."""

        x: int = field(default=1, init=False)

    class KeywordOnly:
        """A parameter by name only."""

        x: int = field(kw_only=True)

    class Inherits(make_point(frozen)):  # type: ignore[misc]
        """More fields than its base."""

        z: int = 1

    for kind in (Init, Later, KeywordOnly, Inherits):
        with pytest.raises(TypeError):
            frozen(kind)
