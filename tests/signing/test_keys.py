from __future__ import annotations

import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization as s
from cryptography.hazmat.primitives.asymmetric import ec, rsa, x25519
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from kvg.errors import Corrupt, Incompatible, KvgError, Untrusted
from kvg.signing import keys
from kvg.signing.keys import PrivateKey, PublicForm, PublicKey

FORMS: tuple[PublicForm, ...] = ("pem", "openssh", "note")
ORDER = 2**252 + 27742317777372353535851937790883648493
FIELD = 2**255 - 19
NO_SSH_KEYGEN = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen")

# RFC 8032, section 7.1: seed, public key, message, signature
RFC8032 = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9"
        "b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f1"
        "1d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
]


def key_of(n: int) -> PrivateKey:
    return keys.from_seed(bytes([n]) * 32)


@pytest.mark.parametrize(("seed", "public", "message", "signature"), RFC8032)
def test_the_vectors_of_rfc_8032(seed: str, public: str, message: str, signature: str) -> None:
    key = keys.from_seed(bytes.fromhex(seed))
    assert key.public.raw.hex() == public
    assert key.sign(bytes.fromhex(message)).hex() == signature
    assert key.public.is_signed(bytes.fromhex(message), bytes.fromhex(signature))


def test_the_keyid_is_the_hash_of_the_der() -> None:
    key = key_of(1)
    der = key._key.public_key().public_bytes(s.Encoding.DER, s.PublicFormat.SubjectPublicKeyInfo)
    assert key.public.der == der
    digest = subprocess.run(["sha256sum"], input=der, capture_output=True, check=True).stdout
    assert key.public.keyid == digest.split()[0].decode()


def test_every_flipped_bit_of_a_signature_is_refused() -> None:
    key = key_of(1)
    good = key.sign(b"message")
    for bit in range(512):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        assert not key.public.is_signed(b"message", bytes(bad))


def test_signatures_of_other_shapes_are_refused() -> None:
    key = key_of(1)
    good = key.sign(b"m")
    scalar = int.from_bytes(good[32:], "little") + ORDER
    assert not key.public.is_signed(b"m", good[:32] + scalar.to_bytes(32, "little"))
    for bad in (b"", good[:-1], good + b"\0", bytes(64), b"\xff" * 64):
        assert not key.public.is_signed(b"m", bad)
    assert not key.public.is_signed(b"n", good)
    assert not key_of(2).public.is_signed(b"m", good)


def torsion_points() -> list[tuple[int, int]]:
    """The eight points of small order of edwards25519, by plain arithmetic."""
    d = -121665 * pow(121666, -1, FIELD) % FIELD

    def add(p: tuple[int, int], q: tuple[int, int]) -> tuple[int, int]:
        (x1, y1), (x2, y2) = p, q
        t = d * x1 * x2 * y1 * y2 % FIELD
        x = (x1 * y2 + x2 * y1) * pow(1 + t, -1, FIELD) % FIELD
        return x, (y1 * y2 + x1 * x2) * pow(1 - t, -1, FIELD) % FIELD

    y = int.from_bytes(
        bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little"
    )
    square = (y * y - 1) * pow(d * y * y + 1, -1, FIELD) % FIELD
    x = pow(square, (FIELD + 3) // 8, FIELD)
    if x * x % FIELD != square:
        x = x * pow(2, (FIELD - 1) // 4, FIELD) % FIELD
    assert x * x % FIELD == square
    points = [(0, 1)]
    for _ in range(7):
        points.append(add(points[-1], (x, y)))
    assert add(points[-1], (x, y)) == (0, 1) and len(set(points)) == 8
    return points


def test_keys_of_small_order_are_refused() -> None:
    for x, y in torsion_points():
        for sign in {x & 1, 0, 1}:
            with pytest.raises(ValueError, match="weak"):
                PublicKey((y | sign << 255).to_bytes(32, "little"))


@pytest.mark.parametrize("y", [FIELD, FIELD + 1, FIELD + 18, 2**255 - 1])
def test_keys_outside_the_field_are_refused(y: int) -> None:
    for sign in (0, 1):
        with pytest.raises(ValueError, match="weak"):
            PublicKey((y | sign << 255).to_bytes(32, "little"))


@pytest.mark.parametrize("size", [0, 31, 33])
def test_keys_of_another_length_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match="bytes"):
        PublicKey(bytes([7]) * size)
    with pytest.raises(ValueError):
        keys.from_seed(bytes(size))


def test_a_key_that_is_no_point_has_signed_nothing() -> None:
    key = PublicKey((2).to_bytes(32, "little"))
    assert not key.is_signed(b"m", key_of(1).sign(b"m"))


def test_a_private_key_does_not_show_its_secret() -> None:
    key = keys.from_seed(b"\x2a" * 32)
    assert repr(key) == f"PrivateKey(keyid={key.public.keyid!r})"
    assert not hasattr(key, "__dict__")


def test_new_keys_differ() -> None:
    assert keys.generate().public != keys.generate().public


@pytest.mark.parametrize("passphrase", [None, b"open sesame"])
def test_a_private_key_survives_pkcs8(passphrase: bytes | None) -> None:
    key = key_of(3)
    data = keys.encode_private(key, passphrase)
    assert keys.is_encrypted(data, what="k") is (passphrase is not None)
    ask = None if passphrase is None else (lambda: passphrase)
    assert keys.parse_private(data, what="k", passphrase=ask).public == key.public


def test_the_passphrase_is_asked_only_if_needed() -> None:
    def ask() -> bytes:
        raise AssertionError("asked")

    data = keys.encode_private(key_of(3), None)
    assert keys.parse_private(data, what="k", passphrase=ask).public == key_of(3).public


def test_a_missing_passphrase_says_how_to_give_it() -> None:
    data = keys.encode_private(key_of(3), b"pass")
    with pytest.raises(Untrusted, match=r"^k: the key is encrypted") as caught:
        keys.parse_private(data, what="k", passphrase=None)
    hint = caught.value.hint or ""
    for name in ("KVG_PASSPHRASE_FD", "KVG_PASSPHRASE_FILE", "KVG_PASSPHRASE_COMMAND"):
        assert name in hint


@pytest.mark.parametrize("wrong", [b"", b"pasS", b"pass\n"])
def test_a_wrong_passphrase_is_untrusted(wrong: bytes) -> None:
    data = keys.encode_private(key_of(3), b"pass")
    with pytest.raises(Untrusted, match=r"^k: wrong passphrase"):
        keys.parse_private(data, what="k", passphrase=lambda: wrong)


def test_an_empty_passphrase_protects_nothing_and_is_refused() -> None:
    with pytest.raises(ValueError):
        keys.encode_private(key_of(3), b"")


@pytest.mark.parametrize(
    "key",
    [
        rsa.generate_private_key(65537, 2048),
        ec.generate_private_key(ec.SECP256R1()),
        x25519.X25519PrivateKey.generate(),
    ],
    ids=["rsa", "ecdsa", "x25519"],
)
def test_other_kinds_of_private_key_are_incompatible(
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | x25519.X25519PrivateKey,
) -> None:
    data = key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
    with pytest.raises(Incompatible, match=r"^k: "):
        keys.parse_private(data, what="k", passphrase=None)
    public = key.public_key().public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)
    with pytest.raises((Incompatible, Corrupt), match=r"^k: "):
        keys.parse_public(public.decode(), what="k")


def test_an_rsa_key_in_its_own_pem_is_incompatible() -> None:
    data = rsa.generate_private_key(65537, 2048).private_bytes(
        s.Encoding.PEM, s.PrivateFormat.TraditionalOpenSSL, s.NoEncryption()
    )
    with pytest.raises(Incompatible, match=r"^k: rsa private key"):
        keys.parse_private(data, what="k", passphrase=None)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello",
        b"\xff" * 100,
        b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n",
        keys.encode_private(key_of(1), None) * 2,
        keys.encode_private(key_of(1), None)[:-40],
        keys.encode_private(key_of(1), None) + b" " * keys.MAX_KEY_FILE,
    ],
)
def test_malformed_private_keys_are_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt, match=r"^k: "):
        keys.parse_private(data, what="k", passphrase=None)


@given(st.binary(min_size=32, max_size=32))
def test_an_unencrypted_key_is_written_as_cryptography_writes_it(seed: bytes) -> None:
    key = keys.from_seed(seed)
    raw = Ed25519PrivateKey.from_private_bytes(seed)
    data = raw.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
    assert keys.encode_private(key, None) == data
    for spelling in (data, data.replace(b"\n", b"\r\n"), b"\n" + data, data[:-1]):
        read = keys.parse_private(spelling, what="k", passphrase=None)
        assert read.public == key.public
        assert read.sign(b"m") == key.sign(b"m")


def test_an_unencrypted_key_of_another_kind_is_none() -> None:
    raw = x25519.X25519PrivateKey.from_private_bytes(b"\x05" * 32)
    data = raw.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
    with pytest.raises(Incompatible):
        keys.parse_private(data, what="k", passphrase=None)


def test_a_private_key_in_openssh_form_is_read() -> None:
    raw = Ed25519PrivateKey.from_private_bytes(b"\x05" * 32)
    data = raw.private_bytes(s.Encoding.PEM, s.PrivateFormat.OpenSSH, s.NoEncryption())
    assert keys.parse_private(data, what="k", passphrase=None).public == key_of(5).public


@NO_SSH_KEYGEN
@pytest.mark.parametrize("passphrase", ["", "open sesame"])
def test_keys_made_by_ssh_keygen_are_read(tmp_path: Path, passphrase: str) -> None:
    path = tmp_path / "id"
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", "me@host", "-f", str(path))
    public = keys.parse_public(path.with_suffix(".pub").read_text(), what="k")
    assert keys.is_encrypted(path.read_bytes(), what="k") is bool(passphrase)
    if passphrase and find_spec("bcrypt") is None:
        with pytest.raises(Incompatible, match="bcrypt"):
            keys.parse_private(path.read_bytes(), what="k", passphrase=passphrase.encode)
        pytest.skip("no bcrypt to open an encrypted OpenSSH key")
    key = keys.parse_private(path.read_bytes(), what="k", passphrase=passphrase.encode)
    assert key.public == public
    if passphrase:
        with pytest.raises(Untrusted, match="wrong"):
            keys.parse_private(path.read_bytes(), what="k", passphrase=lambda: b"other")


@NO_SSH_KEYGEN
def test_ssh_keygen_reads_what_kvg_writes(tmp_path: Path) -> None:
    key, path = key_of(9), tmp_path / "k.pub"
    path.write_text(keys.encode_public(key.public, "openssh", "me") + "\n")
    assert b"ED25519" in run("ssh-keygen", "-l", "-f", str(path))


def run(*command: str) -> bytes:
    return subprocess.run(command, capture_output=True, check=True).stdout


@given(st.binary(min_size=32, max_size=32))
def test_every_form_of_a_public_key_comes_back(seed: bytes) -> None:
    public = keys.from_seed(seed).public
    for form in FORMS:
        text = keys.encode_public(public, form, "store.example/kvg")
        assert not text.endswith("\n")
        assert keys.parse_public(text, what="k") == public
        assert keys.parse_public(text + "\n", what="k") == public


def test_the_pem_is_the_one_of_openssl() -> None:
    public = key_of(4).public
    theirs = key_of(4)._key.public_key()
    pem = theirs.public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo).decode()
    line = theirs.public_bytes(s.Encoding.OpenSSH, s.PublicFormat.OpenSSH).decode()
    assert keys.encode_public(public, "pem", "x") + "\n" == pem
    assert keys.parse_public(pem.replace("\n", "\r\n"), what="k") == public
    assert keys.encode_public(public, "openssh", "") == line
    assert keys.encode_public(public, "openssh", "me@host") == f"{line} me@host"


def test_names_that_a_form_cannot_hold_are_refused() -> None:
    for form, name in (("openssh", "a\nb"), ("note", "a b"), ("note", "a+b"), ("note", "")):
        with pytest.raises(ValueError):
            keys.encode_public(key_of(1).public, form, name)  # type: ignore[arg-type]


def test_a_verifier_may_be_named_like_a_kind_of_ssh_key() -> None:
    text = keys.encode_public(key_of(1).public, "note", "ssh-host.example")
    assert keys.parse_public(text, what="k") == key_of(1).public


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", Corrupt),
        ("hello", Corrupt),
        ("ssh-rsa AAAA me", Incompatible),
        ("ecdsa-sha2-nistp256 AAAA", Incompatible),
        ("sk-ssh-ed25519@openssh.com AAAA", Incompatible),
        ("ssh-ed25519 AAAA", Corrupt),
        ("ssh-ed25519", Corrupt),
        ("ssh-ed25519 ", Corrupt),
        ("no-pty ssh-ed25519 AAAA", Corrupt),
        (keys.encode_public(key_of(1).public, "openssh", "a") + "\nb", Corrupt),
        (keys.encode_public(key_of(1).public, "pem", "a").replace("PUBLIC", "OTHER"), Corrupt),
        (keys.encode_public(key_of(1).public, "pem", "a") + "\nx", Corrupt),
        (keys.encode_public(key_of(1).public, "pem", "a")[:-10], Corrupt),
        ("name+00000000+AQ==", Corrupt),
        ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", Incompatible),
        (" " * keys.MAX_KEY_FILE + keys.encode_public(key_of(1).public, "pem", ""), Corrupt),
    ],
)
def test_malformed_public_keys_are_refused(text: str, error: type[KvgError]) -> None:
    with pytest.raises(error, match=r"^k: "):
        keys.parse_public(text, what="k")


def test_a_weak_key_is_refused_in_every_form() -> None:
    from kvg.signing import base64

    weak = b"\x01" + bytes(31)
    der, blob = keys._SPKI_PREFIX + weak, keys._SSH_PREFIX + weak
    for text in (
        f"-----BEGIN PUBLIC KEY-----\n{base64.encode(der)}\n-----END PUBLIC KEY-----",
        f"ssh-ed25519 {base64.encode(blob)}",
        f"a+00000000+{base64.encode(bytes([1]) + weak)}",
    ):
        with pytest.raises(Corrupt, match=r"^k: weak public key"):
            keys.parse_public(text, what="k")


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_no_private_key(data: bytes) -> None:
    for body in (data, b"-----BEGIN PRIVATE KEY-----\n" + data):
        with pytest.raises((Corrupt, Incompatible)):
            keys.parse_private(body, what="k", passphrase=None)


@given(st.text(max_size=200))
def test_arbitrary_text_is_no_public_key(text: str) -> None:
    for body in (text, "ssh-ed25519 " + text, "-----BEGIN PUBLIC KEY-----\n" + text):
        with pytest.raises((Corrupt, Incompatible)):
            keys.parse_public(body, what="k")


def test_an_x448_key_of_the_wrong_length_is_corrupt() -> None:
    """Found by fuzzing: OpenSSL fails to set the key up, and says so by an error of its own."""
    body = "MC4CAQAwBQYDK2VvBCIEIJOM7laLPCAPrR6AhiIwSG5s+AaxtfRktZiCLHQhYrRY"
    pem = f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n"
    with pytest.raises(Corrupt):
        keys.parse_private(pem.encode(), what="it", passphrase=None)
