from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvg.errors import Corrupt, Untrusted, UsageError
from kvg.log.checkpoint import Checkpoint, open_checkpoint, parse_checkpoint, sign_checkpoint
from kvg.log.merkle import EMPTY_ROOT
from kvg.signing.keys import PrivateKey
from kvg.signing.note import sign_note

ORIGIN = "store.example/kvg"


def test_vector(vectors: dict[str, Any], key: PrivateKey) -> None:
    vector = vectors["checkpoint"]
    root = bytes.fromhex(vectors["rfc6962"]["roots_hex"][vector["size"]])
    checkpoint = Checkpoint(vector["origin"], vector["size"], root)
    note = vector["note"].encode()
    assert sign_checkpoint(checkpoint, key) == note
    assert parse_checkpoint(note, what="c") == checkpoint
    assert open_checkpoint(note, origin=ORIGIN, verifier=key.public, what="c") == checkpoint


def test_another_key_or_origin_is_untrusted(key: PrivateKey, other_key: PrivateKey) -> None:
    note = sign_checkpoint(Checkpoint(ORIGIN, 0, EMPTY_ROOT), key)
    with pytest.raises(Untrusted, match="not signed"):
        open_checkpoint(note, origin=ORIGIN, verifier=other_key.public, what="c")
    with pytest.raises(Untrusted, match="expected other"):
        open_checkpoint(note, origin="other", verifier=key.public, what="c")


def test_signatures_of_others_do_no_harm(key: PrivateKey, other_key: PrivateKey) -> None:
    checkpoint = Checkpoint(ORIGIN, 3, bytes(32))
    note = sign_checkpoint(checkpoint, key, other_key)
    for verifier in (key.public, other_key.public):
        assert open_checkpoint(note, origin=ORIGIN, verifier=verifier, what="c") == checkpoint


def test_extension_lines_are_passed_over(key: PrivateKey) -> None:
    text = Checkpoint(ORIGIN, 3, bytes(32)).text + "more\n"
    note = sign_note(text, [(ORIGIN, key)])
    assert open_checkpoint(note, origin=ORIGIN, verifier=key.public, what="c").size == 3


ROOT = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="


@pytest.mark.parametrize(
    "text",
    [
        f"{ORIGIN}\n3\n",
        f"{ORIGIN}\n03\n{ROOT}\n",
        f"{ORIGIN}\n-3\n{ROOT}\n",
        f"{ORIGIN}\n+3\n{ROOT}\n",
        f"{ORIGIN}\n3 \n{ROOT}\n",
        f"{ORIGIN}\n\u0663\n{ROOT}\n",
        f"{ORIGIN}\n9999999999999999\n{ROOT}\n",
        f"{ORIGIN}\n99999999999999999999\n{ROOT}\n",
        f"{ORIGIN}\n3\n{ROOT[:-1]}\n",
        f"{ORIGIN}\n3\n{ROOT[:-2]}B=\n",
        f"{ORIGIN}\n3\nAAAA\n",
        f"two words\n3\n{ROOT}\n",
        f"{ORIGIN}\n3\n\n{ROOT}\n",
    ],
)
def test_malformed_checkpoints_are_corrupt(text: str, key: PrivateKey) -> None:
    note = sign_note(text, [(ORIGIN, key)])
    with pytest.raises(Corrupt, match=r"^c: "):
        parse_checkpoint(note.replace(b"\n\n\n", b"\n\n"), what="c")


@pytest.mark.parametrize("origin", ["", "two words", "a+b", "a\nb", "x" * 201])
def test_bad_origins_are_refused(origin: str) -> None:
    with pytest.raises(UsageError):
        Checkpoint(origin, 0, EMPTY_ROOT)


def test_field_s29_every_flip_of_a_checkpoint_is_an_error_of_ours(key: PrivateKey) -> None:
    note = sign_checkpoint(Checkpoint(ORIGIN, 11, bytes(range(32))), key)
    for index in range(len(note)):
        for bit in range(8):
            wrong = bytearray(note)
            wrong[index] ^= 1 << bit
            with pytest.raises((Corrupt, Untrusted), match=r"^c"):
                open_checkpoint(wrong, origin=ORIGIN, verifier=key.public, what="c")


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_field_s29_arbitrary_bytes_are_an_error_of_ours(data: bytes) -> None:
    with pytest.raises(Corrupt, match=r"^c"):
        parse_checkpoint(data, what="c")
