from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from securesystemslib import dsse as theirs
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import CryptoSigner, SSlibKey

from kvg.errors import Corrupt, Incompatible
from kvg.signing import dsse, keys
from kvg.signing.dsse import PAYLOAD_TYPE, Envelope, Signature
from kvg.signing.keys import PrivateKey, PublicKey

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "vectors.json").read_text())
ALICE, BOB, EVE = (keys.from_seed(bytes([n]) * 32) for n in (1, 2, 3))


def their_key(public: PublicKey) -> SSlibKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    return SSlibKey.from_crypto(Ed25519PublicKey.from_public_bytes(public.raw), public.keyid)


def sample() -> dict[str, Any]:
    return dict(json.loads(dsse.sign_envelope(b'{"a":1}', [ALICE])))


def parse(value: object) -> Envelope:
    return dsse.parse_envelope(json.dumps(value).encode(), what="e")


@pytest.mark.parametrize("case", VECTORS["dsse_pae"])
def test_the_vectors_of_the_encoding(case: dict[str, str]) -> None:
    payload, expected = (base64.b64decode(case[name]) for name in ("payload_b64", "pae_b64"))
    assert dsse.pae(case["payloadType"], payload) == expected


def test_the_vector_of_an_envelope() -> None:
    vector = VECTORS["dsse_envelope"]
    key = keys.from_seed(bytes.fromhex(vector["seed_hex"]))
    envelope = parse(vector["envelope"])
    assert key.public.keyid == vector["keyid"] == envelope.signatures[0].keyid
    assert dsse.signers(envelope, [EVE.public, key.public]) == (key.public,)
    assert json.loads(dsse.sign_envelope(envelope.payload, [key])) == vector["envelope"]


@given(st.binary(max_size=300))
def test_securesystemslib_accepts_what_kvg_signs(payload: bytes) -> None:
    envelope = theirs.Envelope.from_dict(json.loads(dsse.sign_envelope(payload, [ALICE, BOB])))
    pair = [their_key(ALICE.public), their_key(BOB.public)]
    assert envelope.payload == payload and set(envelope.verify(pair, 2)) == {
        ALICE.public.keyid,
        BOB.public.keyid,
    }
    with pytest.raises(VerificationError):
        envelope.verify([their_key(EVE.public)], 1)


@given(st.binary(max_size=300))
def test_kvg_accepts_what_securesystemslib_signs(payload: bytes) -> None:
    foreign = theirs.Envelope(payload, PAYLOAD_TYPE, {})
    foreign.sign(CryptoSigner(ALICE._key, their_key(ALICE.public)))
    envelope = parse(foreign.to_dict())
    assert envelope.payload == payload
    assert dsse.pae(PAYLOAD_TYPE, payload) == foreign.pae()
    assert dsse.signers(envelope, [ALICE.public, BOB.public]) == (ALICE.public,)


@given(st.binary(max_size=100), st.lists(st.sampled_from([ALICE, BOB, EVE]), min_size=1))
def test_an_envelope_comes_back(payload: bytes, with_keys: list[PrivateKey]) -> None:
    data = dsse.sign_envelope(payload, with_keys)
    envelope = dsse.parse_envelope(data, what="e")
    assert envelope.payload == payload and dsse.encode_envelope(envelope) == data
    everyone = [ALICE.public, BOB.public, EVE.public]
    expected = [key for key in everyone if key in {k.public for k in with_keys}]
    assert list(dsse.signers(envelope, everyone)) == expected


def test_the_keyid_is_only_a_hint() -> None:
    message = dsse.pae(PAYLOAD_TYPE, b"x")
    sig = ALICE.sign(message)
    for keyid in ("", "nonsense", BOB.public.keyid):
        envelope = Envelope(PAYLOAD_TYPE, b"x", (Signature(keyid, sig),))
        assert dsse.signers(envelope, [BOB.public, ALICE.public]) == (ALICE.public,)
    stolen = Envelope(PAYLOAD_TYPE, b"x", (Signature(ALICE.public.keyid, EVE.sign(message)),))
    assert dsse.signers(stolen, [ALICE.public]) == ()


def test_a_key_counts_once() -> None:
    sig = Signature("", ALICE.sign(dsse.pae(PAYLOAD_TYPE, b"x")))
    again = Signature("other", sig.sig)
    envelope = Envelope(PAYLOAD_TYPE, b"x", (sig, again))
    assert dsse.signers(envelope, [ALICE.public, ALICE.public]) == (ALICE.public,)


def test_the_signature_covers_type_and_payload() -> None:
    signature = (Signature("", ALICE.sign(dsse.pae(PAYLOAD_TYPE, b"x"))),)
    assert dsse.signers(Envelope(PAYLOAD_TYPE, b"x", signature), [ALICE.public])
    assert not dsse.signers(Envelope(PAYLOAD_TYPE, b"y", signature), [ALICE.public])
    assert not dsse.signers(Envelope("text/plain", b"x", signature), [ALICE.public])


@given(st.data())
def test_no_flipped_bit_gives_another_statement(data: st.DataObject) -> None:
    good = dsse.sign_envelope(b'{"a":1}', [ALICE])
    bit = data.draw(st.integers(0, len(good) * 8 - 1))
    bad = bytearray(good)
    bad[bit // 8] ^= 1 << bit % 8
    try:
        envelope = dsse.parse_envelope(bytes(bad), what="e")
    except (Corrupt, Incompatible):
        return
    if dsse.signers(envelope, [ALICE.public]):
        assert envelope.payload == b'{"a":1}'


def test_url_safe_base64_and_unknown_fields_are_taken() -> None:
    value = sample() | {"extension": {"deep": [1, None]}}
    envelope = parse(value)
    value["payload"] = base64.urlsafe_b64encode(b"\xfb\xff\xfe").decode()
    message = dsse.pae(PAYLOAD_TYPE, b"\xfb\xff\xfe")
    sig = base64.urlsafe_b64encode(ALICE.sign(message)).decode()
    value["signatures"] = [{"sig": sig, "cert": "x"}, {"sig": sig, "keyid": None}]
    assert dsse.signers(envelope, [ALICE.public]) == (ALICE.public,)
    assert dsse.signers(parse(value), [ALICE.public]) == (ALICE.public,)


@pytest.mark.parametrize(
    "change",
    [
        {"payload": None},
        {"payload": "e30"},
        {"payload": "e3 0="},
        {"payload": "e31="},
        {"signatures": None},
        {"signatures": {}},
        {"signatures": "AAAA"},
        {"signatures": []},
        {"signatures": [{}]},
        {"signatures": [None]},
        {"signatures": [{"sig": ""}]},
        {"signatures": [{"sig": 5}]},
        {"signatures": [{"sig": "AAAA", "keyid": 5}]},
        {"signatures": [{"sig": "AAAA", "keyid": "\x1b[2J"}]},
        {"signatures": [{"sig": "AAAA", "keyid": "\ud800"}]},
        {"signatures": [{"sig": "AAAA", "keyid": "a" * 2000}]},
        {"signatures": [{"sig": "A" * 40_000}]},
        {"signatures": [{"sig": "AAAA"}] * 65},
        {"payloadType": 1},
        {"float": 1.5},
    ],
)
def test_malformed_envelopes_are_corrupt(change: dict[str, object]) -> None:
    with pytest.raises(Corrupt, match=r"^e: "):
        parse(sample() | change)


@pytest.mark.parametrize("name", ["payload", "payloadType", "signatures"])
def test_a_missing_field_is_corrupt(name: str) -> None:
    value = sample()
    del value[name]
    with pytest.raises(Corrupt, match=f"^e: no {name}"):
        parse(value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b"\xff",
        b'{"payload":"","payload":""}',
        b"[" * 100_000,
        b" " * (dsse.MAX_ENVELOPE + 1),
    ],
)
def test_what_is_no_envelope_is_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt, match=r"^e: "):
        dsse.parse_envelope(data, what="e")


@pytest.mark.parametrize("kind", ["", "application/json", PAYLOAD_TYPE + " "])
def test_another_payload_type_is_incompatible(kind: str) -> None:
    with pytest.raises(Incompatible, match=r"^e: payload of type"):
        parse(sample() | {"payloadType": kind})


def test_an_envelope_needs_a_signature() -> None:
    with pytest.raises(ValueError):
        dsse.sign_envelope(b"x", [])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["payload", "payloadType", "signatures", "sig", "keyid"]), inner
        )
    ),
    max_leaves=10,
)


@given(st.binary(max_size=200) | JSON.map(lambda v: json.dumps(v).encode()))
def test_arbitrary_bytes_are_no_envelope(data: bytes) -> None:
    with pytest.raises((Corrupt, Incompatible)):
        dsse.parse_envelope(data, what="e")
