"""Ed25519 keys (RFC 8032) and their spellings on disk.

Private keys are read from PKCS#8 and OpenSSH PEM and written as PKCS#8. Public keys are read and
written as SubjectPublicKeyInfo PEM (RFC 8410), as an OpenSSH line and as a signed-note verifier.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeAlias

from kvg.digest import sha256_bytes
from kvg.errors import Corrupt, Incompatible, Untrusted
from kvg.frozen import frozen
from kvg.signing import base64

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PublicForm: TypeAlias = Literal["pem", "openssh", "note"]
Passphrase: TypeAlias = Callable[[], bytes]

KEY_SIZE = 32
SIGNATURE_SIZE = 64
MAX_KEY_FILE = 64 * 1024

_SPKI_PREFIX = bytes.fromhex("302a300506032b6570032100")
_SSH_TYPE = "ssh-ed25519"
_SSH_PREFIX = b"\x00\x00\x00\x0bssh-ed25519\x00\x00\x00\x20"
_PKCS8_PREFIX = bytes.fromhex("302e020100300506032b657004220420")
_PEM_PUBLIC = r"-----BEGIN ([A-Z0-9 ]+)-----\r?\n([A-Za-z0-9+/=\r\n]+)-----END \1-----\s*"
_PEM_LABEL = rb"-----BEGIN ([A-Z0-9 ]*PRIVATE KEY)-----"
_PEM_PLAIN = ("-----BEGIN PRIVATE KEY-----\n", "\n-----END PRIVATE KEY-----\n")
_ED25519_HINT = "kvg signs with Ed25519 only; make one with kvg key new"
_PASSPHRASE_HINT = (
    "set KVG_PASSPHRASE_FD, KVG_PASSPHRASE_FILE or KVG_PASSPHRASE_COMMAND, or run on a terminal"
)

_FIELD = 2**255 - 19
_SMALL_ORDER_Y = frozenset(
    (
        0,
        1,
        _FIELD - 1,
        int.from_bytes(
            bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
            "little",
        ),
        int.from_bytes(
            bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
            "little",
        ),
    )
)


@frozen
class PublicKey:
    """An Ed25519 public key: the 32 bytes of RFC 8032.

    Raises ``ValueError`` on another length, on a coordinate outside the field and on the points of
    small order, for which anyone could make signatures.
    """

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != KEY_SIZE:
            raise ValueError(f"public key of {len(self.raw)} bytes")
        y = int.from_bytes(self.raw, "little") & (2**255 - 1)
        if y >= _FIELD or y in _SMALL_ORDER_Y:
            raise ValueError("weak public key")

    @property
    def der(self) -> bytes:
        """The DER SubjectPublicKeyInfo (RFC 8410)."""
        return _SPKI_PREFIX + self.raw

    @property
    def keyid(self) -> str:
        """64 hex digits: the SHA-256 of ``der``."""
        return sha256_bytes(self.der).hex()

    def is_signed(self, message: bytes, signature: bytes) -> bool:
        """Whether ``signature`` is this key's for ``message``; an encoding that is not the one
        that RFC 8032 allows is no signature."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        if len(signature) != SIGNATURE_SIZE:
            return False
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True


class PrivateKey:
    """An Ed25519 private key. Neither ``repr`` nor an error shows the secret."""

    __slots__ = ("_key", "public")

    public: PublicKey

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = PublicKey(key.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """The 64 bytes of the one signature that RFC 8032 defines for ``message``."""
        return self._key.sign(message)

    def __repr__(self) -> str:
        return f"PrivateKey(keyid={self.public.keyid!r})"


def generate() -> PrivateKey:
    """A new key from the system's random source."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return PrivateKey(Ed25519PrivateKey.generate())


def from_seed(seed: bytes) -> PrivateKey:
    """The key of the 32 bytes ``seed``. Raises ``ValueError`` on another length."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return PrivateKey(Ed25519PrivateKey.from_private_bytes(seed))


def encode_private(key: PrivateKey, passphrase: bytes | None) -> bytes:
    """``key`` as PKCS#8 PEM, encrypted when there is a ``passphrase``.

    Raises ``ValueError`` on an empty passphrase.
    """
    if passphrase is None:
        body = base64.encode(_PKCS8_PREFIX + key._key.private_bytes_raw())
        return body.join(_PEM_PLAIN).encode("ascii")
    from cryptography.hazmat.primitives import serialization as s

    protection = s.BestAvailableEncryption(passphrase)
    return key._key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, protection)


def is_encrypted(data: bytes, *, what: str) -> bool:
    """Whether the private key in ``data`` needs a passphrase. Raises as ``parse_private``."""
    return _load(data, None, what=what) is None


def parse_private(data: bytes, *, what: str, passphrase: Passphrase | None) -> PrivateKey:
    """The Ed25519 key in ``data``, PKCS#8 or OpenSSH PEM; ``passphrase`` is asked only if needed.

    Raises ``Corrupt`` when malformed, ``Incompatible`` when it is no Ed25519 key, ``Untrusted``
    when the passphrase is missing or wrong.
    """
    key = _load(data, None, what=what)
    if key is None and passphrase is None:
        raise Untrusted(f"{what}: the key is encrypted", hint=_PASSPHRASE_HINT)
    if key is None and passphrase is not None:
        key = _load(data, passphrase(), what=what)
    if key is None:
        raise Untrusted(f"{what}: wrong passphrase", hint=_PASSPHRASE_HINT)
    return key


def _load(data: bytes, passphrase: bytes | None, *, what: str) -> PrivateKey | None:
    """The key, or None when ``passphrase`` does not open it."""
    if passphrase == b"":
        return None
    plain = _load_plain(data)
    if plain is not None:
        return plain
    from cryptography.exceptions import InternalError, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    is_ssh = _private_label(data, what=what) == b"OPENSSH PRIVATE KEY"
    load = serialization.load_ssh_private_key if is_ssh else serialization.load_pem_private_key
    try:
        key = load(data, passphrase)
    except TypeError:
        return None
    except (ValueError, InternalError):  # the second: key material that OpenSSL cannot set up
        if passphrase is not None:
            return None
        raise Corrupt(f"{what}: malformed private key") from None
    except UnsupportedAlgorithm as error:
        raise _unsupported(error, what=what) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise Incompatible(f"{what}: not an Ed25519 key", hint=_ED25519_HINT)
    return PrivateKey(key)


def _load_plain(data: bytes) -> PrivateKey | None:
    """The key in the one spelling that ``encode_private`` gives an unencrypted one, else None.

    That is RFC 8410, section 7; the parsers for all others cost more than a short command does.
    """
    text = data.decode("ascii", "replace")
    begin, end = _PEM_PLAIN
    if not text.startswith(begin) or not text.endswith(end):
        return None
    try:
        der = base64.decode(text[len(begin) : -len(end)], what="private key")
    except Corrupt:
        return None
    if len(der) != len(_PKCS8_PREFIX) + KEY_SIZE or not der.startswith(_PKCS8_PREFIX):
        return None
    return from_seed(der[len(_PKCS8_PREFIX) :])


def _private_label(data: bytes, *, what: str) -> bytes:
    """The PEM label of the one private key in ``data``."""
    labels: list[bytes] = re.findall(_PEM_LABEL, data) if len(data) <= MAX_KEY_FILE else []
    if len(labels) != 1:
        raise Corrupt(
            f"{what}: not a private key", hint="give one key as PKCS#8 PEM or OpenSSH PEM"
        )
    if labels[0] not in (b"PRIVATE KEY", b"ENCRYPTED PRIVATE KEY", b"OPENSSH PRIVATE KEY"):
        raise Incompatible(
            f"{what}: {labels[0].decode().lower()} is not PKCS#8 or OpenSSH", hint=_ED25519_HINT
        )
    return labels[0]


def _unsupported(error: Exception, *, what: str) -> Incompatible:
    if "bcrypt" in str(error):
        return Incompatible(
            f"{what}: an encrypted OpenSSH key needs the package bcrypt",
            hint="pip install 'cryptography[ssh]'",
        )
    return Incompatible(f"{what}: unsupported kind of key", hint=_ED25519_HINT)


def encode_public(key: PublicKey, form: PublicForm, name: str) -> str:
    """``key`` as text without a final newline; ``name`` is the comment or the verifier's name.

    Raises ``ValueError`` on a name that the form cannot hold.
    """
    from kvg.signing.note import encode_verifier

    if form == "pem":
        return f"-----BEGIN PUBLIC KEY-----\n{base64.encode(key.der)}\n-----END PUBLIC KEY-----"
    if form == "note":
        return encode_verifier(name, key)
    if not name.isprintable():
        raise ValueError(f"key name {name!r}")
    return f"{_SSH_TYPE} {base64.encode(_SSH_PREFIX + key.raw)} {name}".rstrip()


def parse_public(text: str, *, what: str) -> PublicKey:
    """The key in ``text``: SubjectPublicKeyInfo PEM, an OpenSSH line or a note verifier.

    Raises ``Corrupt`` when malformed, ``Incompatible`` when it is no Ed25519 key.
    """
    from kvg.signing.note import parse_verifier

    line = text.strip() if len(text) <= MAX_KEY_FILE else ""
    if line.startswith("-----BEGIN "):
        return _parse_pem(line, what=what)
    if " " in line:
        return _parse_openssh(line, what=what)
    if "+" in line:
        return parse_verifier(line, what=what)[1]
    raise Corrupt(f"{what}: not a public key", hint="give a PEM, an OpenSSH line or a verifier")


def public_from_raw(raw: bytes, *, what: str) -> PublicKey:
    """The key of 32 untrusted bytes. Raises ``Corrupt``."""
    try:
        return PublicKey(raw)
    except ValueError as error:
        raise Corrupt(f"{what}: {error}") from None


def _parse_pem(text: str, *, what: str) -> PublicKey:
    match = re.fullmatch(_PEM_PUBLIC, text, re.ASCII)
    if match is None or match[1] != "PUBLIC KEY":
        raise Corrupt(f"{what}: malformed public key PEM")
    der = base64.decode(match[2].replace("\r", "").replace("\n", ""), what=what)
    if not der.startswith(_SPKI_PREFIX):
        raise Incompatible(f"{what}: not an Ed25519 key", hint=_ED25519_HINT)
    return public_from_raw(der[len(_SPKI_PREFIX) :], what=what)


def _parse_openssh(line: str, *, what: str) -> PublicKey:
    kind, _, rest = line.partition(" ")
    if kind.startswith(("ssh-", "ecdsa-", "sk-")) and kind != _SSH_TYPE:
        raise Incompatible(f"{what}: not an Ed25519 key", hint=_ED25519_HINT)
    if kind != _SSH_TYPE or not line.isprintable():
        raise Corrupt(f"{what}: not one OpenSSH public key")
    blob = base64.decode(rest.partition(" ")[0], what=what)
    if not blob.startswith(_SSH_PREFIX):
        raise Corrupt(f"{what}: malformed OpenSSH public key")
    return public_from_raw(blob[len(_SSH_PREFIX) :], what=what)
