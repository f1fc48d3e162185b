"""From what was typed to values, for the few types that verbs use.

typer would import pydantic for this, which costs more than everything else a short command does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args, get_origin

if TYPE_CHECKING:
    from typer._click.core import Context
    from typer.core import TyperArgument, TyperOption

    Param = TyperArgument | TyperOption


def make_plain(param: Param) -> None:
    """Let ``param`` turn its text into a value by ``coerce``."""

    def process_value(ctx: Context, value: object) -> object:
        found = coerce(param, value)
        if param.required and param.value_is_missing(found):
            from typer._click.exceptions import MissingParameter

            raise MissingParameter(ctx=ctx, param=param)
        return found if param.callback is None else param.callback(ctx, param, found)

    param.process_value = process_value  # type: ignore[method-assign]


def coerce(param: Param, value: object) -> object:
    """``value`` as the type that ``param`` declares. Raises ``BadParameter``."""
    annotation: object = param.type_descriptor.annotation
    if get_origin(annotation) is list:
        items = value if isinstance(value, tuple | list) else () if value is None else (value,)
        inner = get_args(annotation)[0]
        return [_one(inner, item, param) for item in items]
    return None if value is None else _one(annotation, value, param)


def _one(annotation: object, value: object, param: Param) -> object:
    if not isinstance(value, str):
        return value
    if annotation is str and param.param_type_name == "option":
        check_option_text(value, param.opts[0])
    try:
        return convert(annotation, value, param.min, param.max)
    except ValueError as error:
        from typer import BadParameter

        raise BadParameter(str(error), param=param) from None


def check_option_text(text: str, option: str) -> None:
    """Raise ``UsageError`` unless the ``text`` that ``option`` is given is Unicode: on a command
    line it may be any bytes. The words beside options may be names of files, which may be, too."""
    if not text.isascii():
        from kvg.flow.settings import TEXT_HINT, check_text

        hint = f"{TEXT_HINT}; rename one whose name is none"
        check_text(text, what=f"{option} {text[:80]!r}", hint=hint)


def convert(annotation: object, text: str, low: float | None, high: float | None) -> object:
    """``text`` as a value of the plain type ``annotation``, a number within its bounds.

    Raises ``ValueError`` saying what is wrong.
    """
    if annotation is Path:
        return Path(text)
    if get_origin(annotation) is Literal:
        choices = get_args(annotation)
        if text not in choices:
            raise ValueError(f"{text} is not one of {', '.join(choices)}")
        return text
    if annotation in (int, float):
        return _in_range(_number(int if annotation is int else float, text), low, high)
    return text


def _number(kind: type[int] | type[float], text: str) -> int | float:
    try:
        return kind(text)
    except ValueError:
        noun = "an integer" if kind is int else "a number"
        raise ValueError(f"{text} is not {noun}") from None


def _in_range(value: int | float, low: float | None, high: float | None) -> int | float:
    if value != value or (low is not None and value < low) or (high is not None and value > high):
        raise ValueError(
            f"{value} is not in the range from {low} to {'any' if high is None else high}"
        )
    return value
