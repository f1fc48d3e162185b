"""DSSE 1.0.2 envelopes, signed with Ed25519 (https://github.com/secure-systems-lab/dsse).

What is signed is PAE(type, payload). Callers use ``Envelope.payload`` and nothing else of the
stored JSON, and only after ``signers`` has named keys that they trust.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kvg import canon
from kvg.canon import Json
from kvg.errors import Corrupt, Incompatible
from kvg.frozen import frozen
from kvg.signing import base64
from kvg.signing.keys import PrivateKey, PublicKey

PAYLOAD_TYPE = "application/vnd.in-toto+json"
MAX_ENVELOPE = 4 * 1024 * 1024
MAX_SIGNATURES = 64
_MAX_KEYID = 1024
_MAX_SIGNATURE = 16 * 1024


@frozen
class Signature:
    """One signature of an envelope; ``keyid`` is a hint that nobody has authenticated."""

    keyid: str
    sig: bytes

    def __post_init__(self) -> None:
        if not 0 < len(self.sig) <= _MAX_SIGNATURE:
            raise ValueError(f"signature of {len(self.sig)} bytes")
        if len(self.keyid) > _MAX_KEYID or not self.keyid.isprintable():
            raise ValueError("malformed keyid")


@frozen
class Envelope:
    """A parsed envelope. Its payload is not to be believed before ``signers`` has been asked."""

    payload_type: str
    payload: bytes
    signatures: tuple[Signature, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.signatures) <= MAX_SIGNATURES:
            raise ValueError(f"{len(self.signatures)} signatures")


def pae(payload_type: str, payload: bytes) -> bytes:
    """The pre-authentication encoding: the bytes that are signed."""
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def sign_envelope(payload: bytes, keys: Sequence[PrivateKey]) -> bytes:
    """The JSON bytes of an envelope of type ``PAYLOAD_TYPE`` signed by each of ``keys``."""
    message = pae(PAYLOAD_TYPE, payload)
    signatures = tuple(Signature(key.public.keyid, key.sign(message)) for key in keys)
    return encode_envelope(Envelope(PAYLOAD_TYPE, payload, signatures))


def encode_envelope(envelope: Envelope) -> bytes:
    """The canonical JSON bytes of ``envelope``."""
    return canon.encode(
        {
            "payload": base64.encode(envelope.payload),
            "payloadType": envelope.payload_type,
            "signatures": [
                {"keyid": s.keyid, "sig": base64.encode(s.sig)} for s in envelope.signatures
            ],
        }
    )


def parse_envelope(data: bytes, *, what: str) -> Envelope:
    """The envelope in the untrusted JSON ``data``; fields unknown here are passed over.

    Takes standard and URL-safe base64. Raises ``Corrupt`` when malformed or larger than
    ``MAX_ENVELOPE``, ``Incompatible`` when the payload is no in-toto statement.
    """
    if len(data) > MAX_ENVELOPE:
        raise Corrupt(f"{what}: envelope of {len(data)} bytes, at most {MAX_ENVELOPE}")
    value = canon.parse_json(data, what=what)
    kind = canon.as_str(_field(value, "payloadType", what=what), what=f"{what}: payloadType")
    if kind != PAYLOAD_TYPE:
        raise Incompatible(f"{what}: payload of type {kind[:80]!r}, this kvg reads {PAYLOAD_TYPE}")
    body = canon.as_str(_field(value, "payload", what=what), what=f"{what}: payload")
    payload = base64.decode_any(body, what=f"{what}: payload")
    found = canon.as_list(_field(value, "signatures", what=what), what=f"{what}: signatures")
    if not 1 <= len(found) <= MAX_SIGNATURES:
        raise Corrupt(f"{what}: {len(found)} signatures, from 1 to {MAX_SIGNATURES} are allowed")
    return Envelope(kind, payload, tuple(_parse_signature(item, what=what) for item in found))


def signers(envelope: Envelope, keys: Iterable[PublicKey]) -> tuple[PublicKey, ...]:
    """Those of ``keys`` that signed ``envelope``, each once, in the order given.

    Every key is tried on every signature: ``keyid`` only says where to begin.
    """
    message = pae(envelope.payload_type, envelope.payload)
    return tuple(key for key in dict.fromkeys(keys) if _has_signed(envelope, key, message))


def _has_signed(envelope: Envelope, key: PublicKey, message: bytes) -> bool:
    keyid = key.keyid
    likely_first = sorted(envelope.signatures, key=lambda s: s.keyid != keyid)
    return any(key.is_signed(message, s.sig) for s in likely_first)


def _field(value: Json, name: str, *, what: str) -> Json:
    if not isinstance(value, Mapping) or name not in value:
        raise Corrupt(f"{what}: no {name} in the envelope")
    return value[name]


def _parse_signature(value: Json, *, what: str) -> Signature:
    sig = canon.as_str(_field(value, "sig", what=what), what=f"{what}: sig")
    keyid = value.get("keyid") if isinstance(value, Mapping) else None
    try:
        return Signature(
            "" if keyid is None else canon.as_str(keyid, what=f"{what}: keyid"),
            base64.decode_any(sig, what=f"{what}: sig"),
        )
    except ValueError as error:
        raise Corrupt(f"{what}: {error}") from None
