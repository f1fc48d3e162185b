from __future__ import annotations

import base64
import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from kvg.errors import Corrupt, Incompatible
from kvg.signing.cosignature import Witness, cosign, cosigned_at, encode_witness, parse_witness
from kvg.signing.note import encode_signature, encode_verifier, parse_note, sign_note
from tests.artifacts import key_of

TEXT = "kvg-log\n3\nqqlAJmTxpB9A67xSyZk+tmrrNmYClY/fqig7ceZNsSM=\n"
LOG, EVE = key_of("log"), key_of("witness")
WITNESS = Witness("witness.example", EVE.public)


def note(*times: int, text: str = TEXT):
    lines = b"".join(encode_signature(cosign(text, WITNESS.name, EVE, time=t)) for t in times)
    return parse_note(sign_note(TEXT, [("kvg-log", LOG)]) + lines, what="it")


def test_the_line_is_that_of_the_specification() -> None:
    """Recomputed from c2sp.org/tlog-cosignature with nothing of kvg's."""
    line = encode_signature(cosign(TEXT, WITNESS.name, EVE, time=1_764_432_000)).decode()
    dash, name, encoded = line.split()
    raw = base64.b64decode(encoded)
    key = hashlib.sha256(b"witness.example\n\x04" + EVE.public.raw).digest()[:4]
    assert (dash, name, raw[:4]) == ("—", "witness.example", key)
    assert int.from_bytes(raw[4:12], "big") == 1_764_432_000
    message = b"cosignature/v1\ntime 1764432000\n" + TEXT.encode()
    Ed25519PublicKey.from_public_bytes(EVE.public.raw).verify(raw[12:], message)


def test_verifier_lines() -> None:
    line = encode_witness(WITNESS)
    assert parse_witness(line, what="it") == WITNESS
    with pytest.raises(Incompatible):
        parse_witness(encode_verifier("witness.example", EVE.public), what="it")
    for wrong in ("", "name", line[:-4], line.replace("witness", "other"), "a b" + line):
        with pytest.raises(Corrupt):
            parse_witness(wrong, what="it")


def test_when_it_was_cosigned() -> None:
    assert cosigned_at(note(), WITNESS) is None
    assert cosigned_at(note(7), WITNESS) == 7
    assert cosigned_at(note(7, 9), WITNESS) == 9
    assert cosigned_at(note(7, text=TEXT.replace("3", "4", 1)), WITNESS) is None
    assert cosigned_at(note(7), Witness("other.example", EVE.public)) is None
    assert cosigned_at(note(7), Witness(WITNESS.name, LOG.public)) is None
