"""Base64 in its one spelling: what ``decode`` accepts, ``encode`` gives back byte for byte."""

from __future__ import annotations

import binascii

from kvg.errors import Corrupt

_TO_STANDARD = str.maketrans("-_", "+/")


def encode(data: bytes) -> str:
    """Standard, padded base64 of ``data``."""
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def decode(text: str, *, what: str) -> bytes:
    """The bytes of standard, padded base64 (RFC 4648 section 4).

    Raises ``Corrupt`` naming ``what`` on white space, missing padding or stray bits.
    """
    try:
        data = binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except (binascii.Error, UnicodeEncodeError):
        raise Corrupt(f"{what}: malformed base64") from None
    if encode(data) != text:
        raise Corrupt(f"{what}: base64 in a second spelling")
    return data


def decode_any(text: str, *, what: str) -> bytes:
    """As ``decode``, for the standard or the URL-safe alphabet, never both in one text."""
    if "-" not in text and "_" not in text:
        return decode(text, what=what)
    if "+" in text or "/" in text:
        raise Corrupt(f"{what}: base64 of two alphabets")
    return decode(text.translate(_TO_STANDARD), what=what)
