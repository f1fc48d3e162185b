"""Names of refs, and what a person may write to mean an artifact."""

from __future__ import annotations

import re

from kvg.errors import UsageError, without_login
from kvg.frozen import frozen

MAX_NAME_BYTES = 255
_NAME = r"[a-z0-9_-][a-z0-9._-]*(?:/[a-z0-9_-][a-z0-9._-]*)*"
_PAST = r"([^@]+)@\{([0-9]{1,9})\}"
_HEX = frozenset("0123456789abcdef")
RULE = "lower-case letters, digits and . _ - /, no part starts with a dot, no '..'"


@frozen
class RefAt:
    """A ref, or its value ``back`` moves ago: ``REF@{back}``."""

    name: str
    back: int = 0

    def __post_init__(self) -> None:
        check_ref_name(self.name)
        if self.back < 0:
            raise UsageError(f"{self.name}@{{{self.back}}}: not a number of moves")

    def __str__(self) -> str:
        return f"{self.name}@{{{self.back}}}" if self.back else self.name


def is_ref_name(name: str) -> bool:
    """Whether ``name`` may name an artifact."""
    return (
        len(name.encode("utf-8", "replace")) <= MAX_NAME_BYTES
        and re.fullmatch(_NAME, name) is not None
        and ".." not in name
    )


def check_ref_name(name: str) -> None:
    """Raise ``UsageError`` unless ``name`` is a name of a ref."""
    if not is_ref_name(name):
        raise UsageError(
            f"{without_login(name)[:80]!r}: not a name of a ref",
            hint=f"a name has {RULE}; e.g. docs/handbook",
        )


def parse_ref_at(text: str) -> RefAt:
    """``REF`` or ``REF@{n}``. Raises ``UsageError``."""
    past = re.fullmatch(_PAST, text) if "@{" in text else None
    if past is None:
        return RefAt(text)
    return RefAt(past[1], int(past[2]))


def parse_digest_prefix(text: str) -> str | None:
    """The hex of ``sha256:…`` or of at least 6 bare hex digits; None when ``text`` is neither.

    Raises ``UsageError`` when it begins with ``sha256:`` and is no digest.
    """
    from kvg.digest import PREFIX, parse_prefix

    if text.startswith(PREFIX):
        return parse_prefix(text)
    return text if 6 <= len(text) <= 64 and _HEX.issuperset(text) else None


def ref_from_stem(stem: str) -> str:
    """The ref that a file named ``stem`` gets when none is given: lower case, the rest as ``-``.

    Raises ``UsageError`` when nothing usable is left.
    """
    name = re.sub(r"[^a-z0-9._-]+", "-", stem.lower())
    name = re.sub(r"\.{2,}", ".", name).strip(".-")[:MAX_NAME_BYTES]
    if not is_ref_name(name):
        raise UsageError(
            f"{stem[:80]!r}: gives no name of a ref", hint="give one: kvg deposit REF FILE"
        )
    return name
