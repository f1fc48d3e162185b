"""Canonical JSON (RFC 8785) and the strict reading of kvg's own documents.

What is hashed and signed is the stored bytes. ``decode`` therefore accepts exactly the bytes that
``encode`` would have written and nothing else: no duplicate or unordered keys, no white space, no
floats, no trailing bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn, TypeAlias, TypeVar

from kvg.errors import Corrupt, Incompatible

Json: TypeAlias = "bool | int | str | Sequence[Json] | Mapping[str, Json] | None"
"""A value of a kvg document: JSON without floats."""

T = TypeVar("T")

MAX_INTEGER = 2**53 - 1
MAX_DEPTH = 64
MAX_VALUES = 1 << 22
"""About the most values of one document that is read: an empty one takes 3 bytes there and 70 here,
so that the size of the bytes bounds nothing."""

_ENCODER = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"))
"""Writes what RFC 8785 asks for where keys are ASCII and there are no floats; in C."""


def encode(value: Json, *, max_depth: int = MAX_DEPTH) -> bytes:
    """The RFC 8785 bytes of ``value``. Raises ``ValueError`` on floats and integers past 2^53-1."""
    return _write(value, _check_plain(value, 0, max_depth))


def _write(value: Json, is_usual: bool) -> bytes:
    if is_usual:
        return _ENCODER.encode(value).encode("utf-8")
    import rfc8785

    return rfc8785.dumps(value)


def decode(data: bytes, *, what: str) -> Json:
    """The value of the canonical ``data``. Raises ``Corrupt`` naming ``what`` on anything else."""
    value, is_usual = _parse(data, what)
    try:
        same = _write(value, is_usual) == data
    except (ValueError, RecursionError):
        same = False
    if not same:
        raise Corrupt(f"{what}: not canonical JSON", hint="kvg fsck")
    return value


def parse_json(data: bytes | str, *, what: str) -> Json:
    """Foreign JSON: duplicate keys, floats and NaN refused, depth bounded, any spacing accepted.

    Raises ``Corrupt`` naming ``what``.
    """
    return _parse(data, what)[0]


def _parse(data: bytes | str, what: str) -> tuple[Json, bool]:
    """The value, and whether ``_ENCODER`` may write it."""
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        if sum(text.count(mark) for mark in ",[{") > MAX_VALUES:
            raise ValueError(f"more than {MAX_VALUES:,} values")
        value = json.loads(
            text,
            object_pairs_hook=unique,
            parse_float=_no_float,
            parse_constant=_no_float,
            parse_int=_small_int,
        )
        is_usual = _check_plain(value, 0)
        if "\\u" in text:  # the one way in for half a surrogate pair
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        why = "not Unicode text: half a surrogate pair"
        raise Corrupt(f"{what}: malformed JSON: {why}", hint="kvg fsck") from None
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"{what}: malformed JSON: {error}", hint="kvg fsck") from None
    return value, is_usual


def take(value: Json, keys: Sequence[str], *, what: str) -> Mapping[str, Json]:
    """``value`` as an object with exactly ``keys``. Raises ``Corrupt``."""
    if not isinstance(value, Mapping):
        raise Corrupt(f"{what}: not an object")
    unknown, missing = sorted(value.keys() - set(keys)), sorted(set(keys) - value.keys())
    if unknown or missing:
        raise Corrupt(f"{what}: unknown keys {unknown}, missing keys {missing}")
    return value


def check_schema(value: Json, schema: str, *, what: str) -> None:
    """Raise ``Incompatible`` on another version of ``schema``, else ``Corrupt``, unless it fits."""
    found = value.get("schema") if isinstance(value, Mapping) else None
    if found == schema:
        return
    if isinstance(found, str) and found.split("/")[0] == schema.split("/")[0]:
        raise Incompatible(f"{what}: schema {found}, this kvg reads {schema}", hint="update kvg")
    raise Corrupt(f"{what}: schema {str(found)[:40]!r}, expected {schema}")


def as_str(value: Json, *, what: str) -> str:
    if not isinstance(value, str):
        raise Corrupt(f"{what}: not a string")
    return value


def as_int(value: Json, *, what: str, least: int = 0, most: int = MAX_INTEGER) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Corrupt(f"{what}: not an integer from {least} to {most}")
    return value


def as_list(value: Json, *, what: str) -> Sequence[Json]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise Corrupt(f"{what}: not an array")
    return value


def unique(pairs: list[tuple[str, T]]) -> dict[str, T]:
    """An object of JSON, for ``json.loads``. Raises ``ValueError`` when a key is there twice."""
    out: dict[str, T] = {}
    for key, value in pairs:
        if key in out:
            raise ValueError(f"duplicate key {key[:40]!r}")
        out[key] = value
    return out


def _no_float(text: str) -> NoReturn:
    raise ValueError(f"floating-point number {text[:40]}")


def _small_int(text: str) -> int:
    if len(text) > 17:
        raise ValueError("integer past 2^53-1")
    return int(text)


def _check_plain(value: Json, depth: int, max_depth: int = MAX_DEPTH) -> bool:
    """Raise ``ValueError`` on what a kvg document cannot hold.

    Returns whether ``_ENCODER`` may write it: all keys are ASCII, which sort by any encoding alike.
    """
    if depth > max_depth:
        raise ValueError("nested too deeply")
    if type(value) is str or value is None or isinstance(value, bool | str):
        return True
    if isinstance(value, int):
        if not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise ValueError("integer past 2^53-1")
        return True
    if isinstance(value, Mapping):
        is_usual = type(value) is dict and all(type(k) is str and k.isascii() for k in value)
        items: Iterable[Json] = value.values()
    elif isinstance(value, Sequence):
        is_usual, items = type(value) in (list, tuple), value
    else:
        raise ValueError(f"{type(value).__name__} in a canonical document")
    for item in items:
        is_usual &= _check_plain(item, depth + 1, max_depth)
    return is_usual
