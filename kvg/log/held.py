"""What the owner of a log has moved in it and not yet published, signed for one size of the log.

A log travels whole, refs go one by one: where the newest entry of a ref was not pushed, its pointer
on a remote stays at an earlier one. ``held/<size>`` beside the log's files says of which refs that
is meant, and at which entry each stands: without it, a pointer that is not the newest entry of its
ref is one that somebody moved back.

It is a C2SP signed note by the log's key: ``kvg-held/1``, the origin, the size, the root, then one
line ``<index> <ref>`` for each ref, ascending by ref.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kvg.errors import Corrupt, Untrusted
from kvg.signing import base64
from kvg.signing.note import is_note_signed, parse_note, sign_note

if TYPE_CHECKING:
    from kvg.signing.keys import PrivateKey, PublicKey

FIRST_LINE: Final = "kvg-held/1"
MAX_HELD_BYTES: Final = 64 << 20
_MAX_DIGITS: Final = 16


def held_name(size: int) -> str:
    """The file for the log at ``size``."""
    return f"held/{size}"


def sign_held(
    origin: str, size: int, root: bytes, refs: Mapping[str, int], key: PrivateKey
) -> bytes:
    """The note that ``refs`` stand at those entries of the log at ``size`` and ``root``."""
    lines = [f"{index} {name}\n" for name, index in sorted(refs.items())]
    return sign_note(_head(origin, size, root) + "".join(lines), [(origin, key)])


def open_held(
    note: bytes, origin: str, size: int, root: bytes, verifier: PublicKey, *, what: str
) -> dict[str, int]:
    """Where each ref stands. Raises ``Corrupt``, and ``Untrusted`` on a note of another log."""
    found = parse_note(note, what=what)
    head = _head(origin, size, root)
    if not found.text.startswith(head) or not is_note_signed(found, origin, verifier):
        raise Untrusted(f"{what}: not by the key of log {origin}, of {size} entries")
    refs: dict[str, int] = {}
    for line in found.text[len(head) :].splitlines():
        digits, _, name = line.partition(" ")
        if not digits.isascii() or not digits.isdigit() or len(digits) > _MAX_DIGITS:
            raise Corrupt(f"{what}: not an entry: {line[:80]!r}")
        refs[name] = int(digits)
    return refs


def _head(origin: str, size: int, root: bytes) -> str:
    return f"{FIRST_LINE}\n{origin}\n{size}\n{base64.encode(root)}\n"
