"""What the fields of kvg's documents hold: each check raises ``Corrupt`` naming the field."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from kvg import canon
from kvg.canon import Json
from kvg.digest import is_digest
from kvg.errors import Corrupt

DTYPE_SIZES = {"BF16": 2, "F16": 2, "F32": 4}
"""Bytes of one element, by the safetensors name of the dtype."""

_MAX_NAME = 200
_HEX = frozenset("0123456789abcdef")


def ascends(values: Sequence[int]) -> bool:
    """Whether each of ``values`` is larger than the one before."""
    return all(a < b for a, b in pairwise(values))


def check_digest(value: object, what: str) -> None:
    if not is_digest(value):
        raise Corrupt(f"{what}: not a digest: {str(value)[:80]!r}")


def check_name(value: object, what: str) -> None:
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_NAME or not value.isprintable():
        raise Corrupt(f"{what}: not a name: {str(value)[:80]!r}")


def check_dtype(value: object, what: str) -> None:
    if value not in DTYPE_SIZES:
        raise Corrupt(f"{what}: {str(value)[:40]!r} is not one of {', '.join(DTYPE_SIZES)}")


def check_int(value: object, what: str, *, least: int = 0, most: int = canon.MAX_INTEGER) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Corrupt(f"{what}: not an integer from {least} to {most}")


def check_hex(value: object, what: str) -> None:
    if not isinstance(value, str) or len(value) != 64 or not _HEX.issuperset(value):
        raise Corrupt(f"{what}: not 64 hex digits")


def read_ints(value: Json, what: str) -> tuple[int, ...]:
    return tuple(canon.as_int(item, what=what) for item in canon.as_list(value, what=what))
