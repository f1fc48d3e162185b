"""Who vouches for a log: a note, signed by a publisher's key, that names the log's own key.

A log is signed by a key of its own, which nobody knows at first. ``logs/<origin>/publisher`` is a
C2SP signed note with two lines, ``kvg-publisher/1`` and the verifier line of the log, under the
name of the log. It says: what this log names, I publish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from kvg.errors import Corrupt, Untrusted
from kvg.remote.layout import PUBLISHER_LINE, publisher_text
from kvg.signing.note import is_note_signed, parse_note, sign_note
from kvg.trust import PUBLISHER

if TYPE_CHECKING:
    from kvg.signing.keys import PrivateKey, PublicKey
    from kvg.trust import TrustFile


def sign_publisher(origin: str, log_key: PublicKey, keys: Sequence[PrivateKey]) -> bytes:
    """The note by which ``keys`` vouch for the log ``origin``."""
    return sign_note(publisher_text(origin, log_key), [(origin, key) for key in keys])


def vouching(
    note: bytes, origin: str, log_key: PublicKey, keys: Iterable[PublicKey]
) -> tuple[PublicKey, ...]:
    """Those of ``keys`` that vouch for the log in ``note``. Raises ``Corrupt``, ``Untrusted``."""
    what = f"log {origin}: publisher"
    found = parse_note(note, what=what)
    if found.text != publisher_text(origin, log_key):
        if not found.text.startswith(PUBLISHER_LINE + "\n"):
            raise Corrupt(f"{what}: not the note of a publisher")
        raise Untrusted(f"{what}: vouches for another key than the log has")
    return tuple(key for key in keys if is_note_signed(found, origin, key))


def check_publisher(
    trust: TrustFile,
    note: bytes | None,
    origin: str,
    log_key: PublicKey,
    *,
    where: str,
    hint: Callable[[bytes], str],
) -> bytes:
    """The note, if enough trusted publishers vouch in it for the log; else ``Untrusted``.

    ``hint`` says of a note what to do where nobody trusted vouches in it.
    """
    what = f"log {origin} on {where}"
    if note is None:
        raise Untrusted(f"{what}: no publisher vouches for it", hint="its owner must push again")
    keys = vouching(note, origin, log_key, trust.keys_for(PUBLISHER))
    if len(keys) < trust.threshold(PUBLISHER):
        raise Untrusted(
            f"{what}: not by a publisher that this store trusts",
            hint=hint(note),
        )
    return note


def counts_at(trust: TrustFile, note: bytes, origin: str, log_key: PublicKey, index: int) -> bool:
    """Whether enough trusted publishers vouch for entry ``index``: revoked ones for the past."""
    keys = vouching(note, origin, log_key, trust.keys_for(PUBLISHER))
    counted = [key for key in keys if trust.counts(key.keyid, origin, index)]
    return len(counted) >= trust.threshold(PUBLISHER)
