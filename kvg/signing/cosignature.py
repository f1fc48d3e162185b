"""Witness cosignatures on a checkpoint (https://c2sp.org/tlog-cosignature, Ed25519).

A witness signs a log's checkpoint, with the time, once it has seen that it extends every one that
it cosigned before. So whoever trusts the witness knows that the log was not shown in two forms.
"""

from __future__ import annotations

from kvg.digest import sha256_bytes
from kvg.errors import Corrupt, Incompatible
from kvg.frozen import frozen
from kvg.signing import base64
from kvg.signing.keys import PrivateKey, PublicKey, public_from_raw
from kvg.signing.note import HASH_SIZE, Note, NoteSignature, is_name

_KIND = b"\x04"
_TIME_SIZE = 8
_SIG_SIZE = 64
_MAX_TIME = (1 << 63) - 1


@frozen
class Witness:
    """Who may cosign: a name and its Ed25519 key."""

    name: str
    public: PublicKey

    def __post_init__(self) -> None:
        if not is_name(self.name):
            raise Corrupt(f"{self.name[:80]!r}: not a name of a witness")

    @property
    def key_hash(self) -> bytes:
        """The 4 bytes by which a signature line names this witness's key."""
        data = self.name.encode("utf-8") + b"\n" + _KIND + self.public.raw
        return sha256_bytes(data)[:HASH_SIZE]


def encode_witness(witness: Witness) -> str:
    """Its verifier line: ``<name>+<key hash>+<base64 of 0x04 and the key>``."""
    key = base64.encode(_KIND + witness.public.raw)
    return f"{witness.name}+{witness.key_hash.hex()}+{key}"


def parse_witness(text: str, *, what: str) -> Witness:
    """The witness in a verifier line. Raises ``Corrupt``, ``Incompatible`` on other kinds."""
    name, _, rest = text.partition("+")
    digits, plus, encoded = rest.partition("+")
    if not plus or not is_name(name):
        raise Corrupt(f"{what}: malformed witness key")
    data = base64.decode(encoded, what=what)
    if data[:1] != _KIND:
        raise Incompatible(f"{what}: not an Ed25519 witness key (cosignature/v1)")
    witness = Witness(name, public_from_raw(data[1:], what=what))
    if witness.key_hash.hex() != digits:
        raise Corrupt(f"{what}: the witness key does not match its hash")
    return witness


def cosign(text: str, name: str, key: PrivateKey, *, time: int) -> NoteSignature:
    """The signature line of the witness ``name`` on a checkpoint's ``text``; Unix ``time``."""
    sig = time.to_bytes(_TIME_SIZE, "big") + key.sign(_message(text, time))
    return NoteSignature(name, Witness(name, key.public).key_hash, sig)


def time_of(signature: NoteSignature) -> int:
    """The time that a cosignature states, Unix seconds; nothing is checked."""
    return int.from_bytes(signature.sig[:_TIME_SIZE], "big")


def cosigned_at(note: Note, witness: Witness) -> int | None:
    """When ``witness`` cosigned ``note``, by its own clock; None unless it did.

    A wrong signature under the witness's name and key makes all of its lines worthless.
    """
    mine = [
        s.sig for s in note.signatures if s.name == witness.name and s.key_hash == witness.key_hash
    ]
    times = [_checked_time(note.text, sig, witness.public) for sig in mine]
    known = [time for time in times if time is not None]
    return max(known) if known and len(known) == len(times) else None


def _checked_time(text: str, sig: bytes, public: PublicKey) -> int | None:
    if len(sig) != _TIME_SIZE + _SIG_SIZE:
        return None
    time = int.from_bytes(sig[:_TIME_SIZE], "big")
    if time > _MAX_TIME or not public.is_signed(_message(text, time), sig[_TIME_SIZE:]):
        return None
    return time


def _message(text: str, time: int) -> bytes:
    return f"cosignature/v1\ntime {time}\n{text}".encode()
