"""C2SP signed notes with Ed25519 (https://c2sp.org/signed-note): checkpoints and verifier keys."""

from __future__ import annotations

from collections.abc import Sequence

from kvg.digest import sha256_bytes
from kvg.errors import Corrupt, Incompatible
from kvg.frozen import frozen
from kvg.signing import base64
from kvg.signing.keys import PrivateKey, PublicKey, public_from_raw

MAX_NOTE = 1_000_000
MAX_SIGNATURES = 100
HASH_SIZE = 4
_ED25519 = b"\x01"
_HEX = frozenset("0123456789abcdef")
_DASH = "\u2014"


@frozen
class NoteSignature:
    """One signature line: the signer's name, 4 bytes that say which key, the signature."""

    name: str
    key_hash: bytes
    sig: bytes

    def __post_init__(self) -> None:
        if not is_name(self.name) or len(self.key_hash) != HASH_SIZE or not self.sig:
            raise ValueError("malformed note signature")


@frozen
class Note:
    """A parsed note. ``text`` ends with a newline; believe it only after ``is_note_signed``."""

    text: str
    signatures: tuple[NoteSignature, ...]

    def __post_init__(self) -> None:
        if not _is_text(self.text):
            raise ValueError("malformed note text")


def is_name(name: str) -> bool:
    """Whether ``name`` can name a note's key: not empty, no white space, no ``+``."""
    return bool(name) and name.isprintable() and " " not in name and "+" not in name


def key_hash(name: str, public: PublicKey) -> bytes:
    """The 4 bytes by which a signature line says which key of ``name`` made it."""
    return sha256_bytes(name.encode("utf-8") + b"\n" + _ED25519 + public.raw)[:HASH_SIZE]


def encode_verifier(name: str, public: PublicKey) -> str:
    """``<name>+<key hash>+<base64>``. Raises ``ValueError`` on a name no note can carry."""
    if not is_name(name):
        raise ValueError(f"note key name {name!r}")
    return f"{name}+{key_hash(name, public).hex()}+{base64.encode(_ED25519 + public.raw)}"


def parse_verifier(text: str, *, what: str) -> tuple[str, PublicKey]:
    """The name and key of a verifier line. Raises ``Corrupt``, ``Incompatible`` on other keys."""
    name, _, rest = text.partition("+")
    digits, plus, encoded = rest.partition("+")
    if not plus or not encoded or not is_name(name) or not _is_key_hash(digits):
        raise Corrupt(f"{what}: malformed verifier key")
    data = base64.decode(encoded, what=what)
    if data[:1] != _ED25519:
        raise Incompatible(f"{what}: not an Ed25519 verifier key")
    public = public_from_raw(data[1:], what=what)
    if key_hash(name, public).hex() != digits:
        raise Corrupt(f"{what}: the verifier key does not match its hash")
    return name, public


def _is_key_hash(digits: str) -> bool:
    return len(digits) == 2 * HASH_SIZE and _HEX.issuperset(digits)


def sign_note(text: str, signers: Sequence[tuple[str, PrivateKey]]) -> bytes:
    """The note ``text`` (ends with a newline) signed by each (name, key).

    Raises ``ValueError`` on a text or a name that no note can carry.
    """
    if not _is_text(text) or not signers or not all(is_name(name) for name, _ in signers):
        raise ValueError("malformed note text, or no signer, or a malformed name")
    message = text.encode("utf-8")
    made = [NoteSignature(n, key_hash(n, key.public), key.sign(message)) for n, key in signers]
    return message + b"\n" + b"".join(map(encode_signature, made))


def encode_signature(signature: NoteSignature) -> bytes:
    """The line of ``signature``."""
    encoded = base64.encode(signature.key_hash + signature.sig)
    return f"{_DASH} {signature.name} {encoded}\n".encode()


def parse_note(data: bytes, *, what: str) -> Note:
    """The note in the untrusted ``data``. Raises ``Corrupt`` when malformed or past ``MAX_NOTE``.

    Signatures of unknown kinds are kept: ``is_note_signed`` passes them over.
    """
    try:
        whole = data.decode("utf-8") if len(data) <= MAX_NOTE else ""
    except UnicodeDecodeError:
        raise Corrupt(f"{what}: note is not UTF-8") from None
    text, blank, tail = whole.rpartition("\n\n")
    if not blank or not _is_text(text + "\n"):
        raise Corrupt(f"{what}: malformed note")
    lines = tail.splitlines(keepends=True)
    if not 1 <= len(lines) <= MAX_SIGNATURES:
        raise Corrupt(f"{what}: {len(lines)} note signatures")
    return Note(text + "\n", tuple(_parse_signature(line, what=what) for line in lines))


def is_note_signed(note: Note, name: str, public: PublicKey) -> bool:
    """Whether ``note`` carries a signature of ``name``'s key, and none of that key is wrong."""
    wanted = key_hash(name, public)
    message = note.text.encode("utf-8")
    mine = [s.sig for s in note.signatures if s.name == name and s.key_hash == wanted]
    return bool(mine) and all(public.is_signed(message, sig) for sig in mine)


def _parse_signature(line: str, *, what: str) -> NoteSignature:
    words = line.removesuffix("\n").split(" ")
    if len(words) != 3 or words[0] != _DASH or not line.endswith("\n"):
        raise Corrupt(f"{what}: malformed note signature")
    data = base64.decode(words[2], what=what)
    try:
        return NoteSignature(words[1], data[:HASH_SIZE], data[HASH_SIZE:])
    except ValueError as error:
        raise Corrupt(f"{what}: {error}") from None


def _is_text(text: str) -> bool:
    """Whether ``text`` is a note's: whole lines, no control characters, no lone surrogates."""
    if not text.endswith("\n") or min(text.replace("\n", " ")) < " " or "\x7f" in text:
        return False
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
