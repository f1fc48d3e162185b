from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvg.errors import Corrupt
from kvg.signing import base64


@given(st.binary())
def test_round_trip_in_both_alphabets(data: bytes) -> None:
    text = base64.encode(data)
    assert base64.decode(text, what="x") == data
    assert base64.decode_any(text, what="x") == data
    assert base64.decode_any(text.replace("+", "-").replace("/", "_"), what="x") == data


@given(st.text(alphabet="ABab01+/-_= \n\u00e9", max_size=12))
def test_what_decodes_has_one_spelling(text: str) -> None:
    try:
        data = base64.decode(text, what="x")
    except Corrupt:
        return
    assert base64.encode(data) == text


@pytest.mark.parametrize(
    "text",
    ["A", "AA", "AAA", "AA=", "AB==", "AAB=", "AAAA=", "AA==AA==", " AAAA", "AAAA\n", "AA-_", "é"],
)
def test_other_spellings_are_refused(text: str) -> None:
    with pytest.raises(Corrupt, match=r"^x: "):
        base64.decode(text, what="x")


@pytest.mark.parametrize("text", ["+-AA", "/_AA", "-A=", "__", "-B=="])
def test_two_alphabets_or_stray_bits_are_refused(text: str) -> None:
    with pytest.raises(Corrupt, match=r"^x: "):
        base64.decode_any(text, what="x")
