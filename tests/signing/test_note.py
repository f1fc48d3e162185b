from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvg.errors import Corrupt, Incompatible
from kvg.signing import base64, keys, note
from kvg.signing.keys import PrivateKey

VECTOR = json.loads((Path(__file__).parents[1] / "vectors" / "vectors.json").read_text())[
    "checkpoint"
]
ALICE, BOB = (keys.from_seed(bytes([n]) * 32) for n in (1, 2))
TEXT = "store.example\n7\nAAAA\n"


def signed(*signers: tuple[str, PrivateKey], text: str = TEXT) -> bytes:
    return note.sign_note(text, signers or [("alice", ALICE)])


def test_the_vector_of_a_checkpoint() -> None:
    key = keys.from_seed(bytes.fromhex(VECTOR["seed_hex"]))
    data = VECTOR["note"].encode()
    parsed = note.parse_note(data, what="n")
    assert key.public.raw.hex() == VECTOR["public_hex"]
    assert parsed.text.split("\n")[:2] == [VECTOR["origin"], str(VECTOR["size"])]
    assert note.is_note_signed(parsed, VECTOR["origin"], key.public)
    assert note.sign_note(parsed.text, [(VECTOR["origin"], key)]) == data


def test_the_verifier_of_the_specification() -> None:
    text = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
    name, public = note.parse_verifier(text, what="v")
    assert name == "PeterNeumann" and note.encode_verifier(name, public) == text
    data = (
        "If you think cryptography is the answer to your problem,\n"
        "then you don't know what your problem is.\n"
        "\n"
        "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotp"
        "Z5KMRN2+W3M8AAAA=\n"
    ).encode()
    assert not note.is_note_signed(note.parse_note(data, what="n"), name, public)


@given(
    st.text(alphabet=st.characters(exclude_categories=("Cs", "Cc")) | st.just("\n"), max_size=60),
    st.lists(st.sampled_from([("alice", ALICE), ("bob", BOB), ("é/ü", ALICE)]), min_size=1),
)
def test_a_note_comes_back(text: str, signers: list[tuple[str, PrivateKey]]) -> None:
    data = note.sign_note(text + "\n", signers)
    parsed = note.parse_note(data, what="n")
    assert parsed.text == text + "\n" and len(parsed.signatures) == len(signers)
    for name, key in (("alice", ALICE), ("bob", BOB), ("é/ü", ALICE)):
        assert note.is_note_signed(parsed, name, key.public) is ((name, key) in signers)


def test_a_note_is_signed_by_name_and_key_together() -> None:
    parsed = note.parse_note(signed(), what="n")
    assert note.is_note_signed(parsed, "alice", ALICE.public)
    assert not note.is_note_signed(parsed, "alice", BOB.public)
    assert not note.is_note_signed(parsed, "bob", ALICE.public)


def test_no_flipped_bit_keeps_the_signature() -> None:
    good = signed()
    for bit in range(len(good) * 8):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        try:
            parsed = note.parse_note(bytes(bad), what="n")
        except Corrupt:
            continue
        assert not note.is_note_signed(parsed, "alice", ALICE.public)


def test_one_wrong_signature_of_the_key_spoils_the_right_one() -> None:
    wrong = base64.encode(note.key_hash("alice", ALICE.public) + ALICE.sign(b"other"))
    data = signed() + f"— alice {wrong}\n".encode()
    assert not note.is_note_signed(note.parse_note(data, what="n"), "alice", ALICE.public)


def test_signatures_of_unknown_kinds_are_passed_over() -> None:
    data = signed() + b"\xe2\x80\x94 witness " + base64.encode(bytes(40)).encode() + b"\n"
    parsed = note.parse_note(data, what="n")
    assert len(parsed.signatures) == 2
    assert note.is_note_signed(parsed, "alice", ALICE.public)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"\n\n",
        TEXT.encode(),
        TEXT.encode() + b"\n",
        signed()[:-1],
        signed() + b"\n",
        signed() + b"x\n",
        signed().replace("—".encode(), b"-"),
        signed().replace(b" alice ", b"  "),
        signed().replace(b" alice ", b" a+b "),
        signed().replace(b" alice ", " a\u00a0b ".encode()),
        signed().replace(b" alice ", " a\u2028b ".encode()),
        signed().replace(b"7", b"\0"),
        signed().replace(b"7", b"\r"),
        signed().replace(b"7", b"\xff"),
        signed().replace(b"=\n", b"\n"),
        TEXT.encode() + b"\n" + "— alice AAAAAA==\n".encode(),
        signed() + signed().split(b"\n\n")[1] * 100,
        b"a" * note.MAX_NOTE + signed(),
    ],
)
def test_malformed_notes_are_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt, match=r"^n: "):
        note.parse_note(data, what="n")


@pytest.mark.parametrize("text", ["", "no newline", "a\tb\n", "a\x7f\n", "\ud800\n"])
def test_a_text_that_no_note_carries_is_not_signed(text: str) -> None:
    with pytest.raises(ValueError):
        note.sign_note(text, [("alice", ALICE)])


@pytest.mark.parametrize("name", ["", "a b", "a+b", "a\n", "a\u2028"])
def test_a_name_that_no_note_carries_is_refused(name: str) -> None:
    assert not note.is_name(name)
    with pytest.raises(ValueError):
        note.sign_note(TEXT, [(name, ALICE)])
    with pytest.raises(ValueError):
        note.encode_verifier(name, ALICE.public)


def test_a_note_needs_a_signer() -> None:
    with pytest.raises(ValueError):
        note.sign_note(TEXT, [])


@given(st.binary(min_size=32, max_size=32))
def test_a_verifier_comes_back(seed: bytes) -> None:
    public = keys.from_seed(seed).public
    text = note.encode_verifier("store.example/kvg", public)
    assert note.parse_verifier(text, what="v") == ("store.example/kvg", public)


def test_every_flipped_bit_of_a_verifier_is_refused() -> None:
    good = note.encode_verifier("name", ALICE.public).encode()
    for bit in range(len(good) * 8):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises((Corrupt, Incompatible), match=r"^v: "):
            note.parse_verifier(bad.decode("latin-1"), what="v")


def test_another_kind_of_verifier_is_incompatible() -> None:
    text = f"name+00000000+{base64.encode(bytes([4]) + ALICE.public.raw)}"
    with pytest.raises(Incompatible, match=r"^v: "):
        note.parse_verifier(text, what="v")


@given(st.binary(max_size=200), st.text(max_size=60))
def test_arbitrary_bytes_are_no_note_and_no_verifier(data: bytes, text: str) -> None:
    for body in (data, TEXT.encode() + b"\n" + data):
        with pytest.raises(Corrupt):
            note.parse_note(body, what="n")
    with pytest.raises((Corrupt, Incompatible)):
        note.parse_verifier(text, what="v")
