"""Requests as they cross a session's socket: JSON objects, checked on arrival."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias, TypeVar, cast

from kvg.errors import UsageError
from kvg.flow.requests import (
    AskRequest,
    ContextAskRequest,
    ContextAtRequest,
    DepositRequest,
    GraftRequest,
    LogitsRequest,
    ReplayRequest,
    Sampling,
)

T = TypeVar("T")
Check: TypeAlias = Callable[[object, str], object]
Request: TypeAlias = (
    AskRequest
    | ContextAskRequest
    | ContextAtRequest
    | DepositRequest
    | GraftRequest
    | LogitsRequest
    | ReplayRequest
)


def encode_request(request: Request) -> dict[str, object]:
    """What of ``request`` crosses; files were read before, paths are absolute."""
    checks = CHECKS[type(request)]
    values = {name: getattr(request, name) for name in checks}
    return {name: _plain(value) for name, value in values.items() if value is not None}


def parse_request(kind: type[T], value: object) -> T:
    """The request of ``kind`` that ``value`` describes. Raises ``UsageError``."""
    return _build(kind, value, "request")


def parse_body(data: bytes) -> Mapping[str, object]:
    """A JSON object of a request's body. Raises ``UsageError``."""
    from kvg import canon

    try:
        value = json.loads(data, object_pairs_hook=canon.unique)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"request: malformed JSON: {str(error)[:200]}") from None
    if not isinstance(value, dict):
        raise UsageError("request: not a JSON object")
    return cast("Mapping[str, object]", value)


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Sampling):
        return {name: getattr(value, name) for name in CHECKS[Sampling]}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _build(kind: type[T], value: object, what: str) -> T:
    checks = CHECKS[kind]
    if not isinstance(value, Mapping):
        raise UsageError(f"{what}: not an object")
    unknown = sorted(map(str, value.keys() - checks.keys()))
    if unknown:
        raise UsageError(f"{what}: unknown keys {', '.join(unknown)[:80]}")
    found = {
        name: check(value[name], f"{what}: {name}")
        for name, check in checks.items()
        if value.get(name) is not None
    }
    try:
        return kind(**found)
    except TypeError as error:
        raise UsageError(f"{what}: {str(error).partition('() ')[2] or error}") from None


def as_text(value: object, what: str) -> str:
    """``value`` as text that UTF-8 can hold. Raises ``UsageError``."""
    if not isinstance(value, str):
        raise UsageError(f"{what}: not text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{what}: holds half of a character pair") from None
    return value


def as_int(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > 2**53:
        raise UsageError(f"{what}: not a whole number")
    return value


def as_number(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{what}: not a number")
    return float(value)


def as_bool(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{what}: neither true nor false")
    return value


def as_texts(value: object, what: str) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise UsageError(f"{what}: not a list")
    return tuple(as_text(item, what) for item in value)


def as_messages(value: object, what: str) -> tuple[Mapping[str, str], ...]:
    """Chat messages. Raises ``UsageError``."""
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise UsageError(f"{what}: not a list of chat messages")
    found = []
    for number, item in enumerate(value):
        if not isinstance(item, Mapping):
            raise UsageError(f"{what}: message {number} is no object")
        where = f"{what}: message {number}"
        found.append(
            {key: as_text(item.get(key), f"{where}: {key}") for key in ("role", "content")}
        )
    return tuple(found)


def as_path(value: object, what: str) -> Path:
    path = Path(as_text(value, what))
    if not path.is_absolute() or "\0" in str(path):
        raise UsageError(f"{what}: not an absolute path")
    return path


def _paths(value: object, what: str) -> tuple[Path, ...]:
    return tuple(as_path(item, what) for item in as_texts(value, what))


def _ints(value: object, what: str) -> tuple[int, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise UsageError(f"{what}: not a list")
    return tuple(as_int(item, what) for item in value)


def _reference(value: object, what: str) -> str:
    if value not in ("invariant", "scheduled"):
        raise UsageError(f"{what}: neither invariant nor scheduled")
    return str(value)


def _sampling(value: object, what: str) -> Sampling:
    return _build(Sampling, value, what)


CHECKS: dict[type, dict[str, Check]] = {
    Sampling: {
        "max_tokens": as_int,
        "temperature": as_number,
        "top_p": as_number,
        "seed": as_int,
        "stop": as_texts,
    },
    GraftRequest: {
        "ref": as_text,
        "prompt": as_text,
        "texts": as_texts,
        "messages": as_messages,
        "sampling": _sampling,
        "stream": as_bool,
        "at": as_int,
        "cut": as_int,
        "require": as_texts,
        "or_fresh": as_text,
    },
    AskRequest: {
        "ref": as_text,
        "question": as_text,
        "sampling": _sampling,
        "stream": as_bool,
        "at": as_int,
        "require": as_texts,
    },
    ContextAtRequest: {
        "name": as_text,
        "place": as_text,
        "prompt": as_text,
        "sampling": _sampling,
        "require": as_texts,
    },
    ContextAskRequest: {
        "name": as_text,
        "question": as_text,
        "blocks": as_int,
        "max_tokens": as_int,
        "stop": as_texts,
        "require": as_texts,
    },
    LogitsRequest: {
        "ref": as_text,
        "model": as_text,
        "prompt": as_text,
        "fresh": as_bool,
        "reference": _reference,
        "out": as_path,
    },
    ReplayRequest: {
        "refs": as_texts,
        "samples": as_int,
        "texts": as_texts,
        "reference": _reference,
        "sign": as_bool,
        "key": as_text,
        "slot": as_bool,
    },
    DepositRequest: {
        "ref": as_text,
        "model": as_text,
        "parent": as_text,
        "reference": _reference,
        "page_tokens": as_int,
        "cut_points": _ints,
        "key": as_text,
        "no_source": as_bool,
        "valid_until": as_int,
        "depends": _paths,
        "gates": as_texts,
        "no_sandbox": as_bool,
        "family": as_path,
        "schema_version": as_text,
        "slot": as_bool,
    },
}
"""The fields that cross, and what each must be."""
