from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from kvg.digest import Buffer, blake3_hex, sha256
from kvg.errors import Corrupt
from kvg.objects import manifest as m
from kvg.objects import page, verified
from kvg.objects.verified import Verified

GROUP = m.group_layers([m.LayerSpec(0, "attention", 1, 2, 2, "F32", None)])[0]


def _page(fill: int) -> bytes:
    return page.page_header(GROUP, 4) + bytes([fill]) * page.data_size(GROUP, 4)


PAGES = [_page(1), _page(2)]
MANIFEST = m.Manifest(
    model=m.Model(sha256(b"m"), "Tiny", "F32"),
    engine=m.Engine(sha256(b"e"), "invariant", None),
    tokens=m.Tokens(sha256(b"t"), 8),
    layout=m.Layout(4, (GROUP,)),
    pages=tuple(
        m.Page("full", 4 * i, 4 * i + 4, sha256(raw), blake3_hex(raw), len(raw))
        for i, raw in enumerate(PAGES)
    ),
    witnesses=(m.Witness(7, sha256(b"w"), "F32", (9,), 1),),
)


def _verified(stored: dict[str, Buffer], seal: object = None) -> Verified:
    return Verified(
        verified._seal if seal is None else seal,
        digest=MANIFEST.digest,
        manifest=MANIFEST,
        ids=tuple(range(8)),
        signers=("ab",),
        gates=(),
        provenance=None,
        load_page=lambda wanted: stored[wanted.digest],
    )


STORED: dict[str, Buffer] = {sha256(raw): raw for raw in PAGES}


def test_pages_are_read() -> None:
    artifact = _verified(STORED)
    for wanted, raw in zip(MANIFEST.pages, PAGES, strict=True):
        assert artifact.read_page(wanted) == raw


@pytest.mark.parametrize("seal", [object(), True, "seal"])
def test_without_the_seal_there_is_none(seal: object) -> None:
    with pytest.raises(TypeError, match=r"kvg\.verify only"):
        _verified(STORED, seal)


def test_it_is_not_copied_stored_or_changed() -> None:
    artifact = _verified(STORED)
    for act in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            act(artifact)
    with pytest.raises(AttributeError):
        artifact.digest = sha256(b"x")
    with pytest.raises(AttributeError):
        artifact.other = 1  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        del artifact.ids
    assert repr(artifact) == f"Verified({MANIFEST.digest})"


def _wrong() -> list[Any]:
    flipped = bytearray(PAGES[0])
    flipped[-1] ^= 1
    return [flipped, PAGES[0] + b"\0", PAGES[0][:-1], b"", PAGES[1]]


@pytest.mark.parametrize("raw", _wrong())
def test_wrong_bytes_are_corrupt_and_named(raw: Buffer) -> None:
    wanted = MANIFEST.pages[0]
    with pytest.raises(Corrupt, match=rf"^page {wanted.digest}: "):
        _verified({wanted.digest: raw}).read_page(wanted)


def test_a_page_whose_header_is_of_another_shape_is_corrupt() -> None:
    other = m.group_layers([m.LayerSpec(1, "attention", 1, 2, 2, "F32", None)])[0]
    raw = page.page_header(other, 4) + bytes(page.data_size(other, 4))
    wanted = m.Page("full", 0, 4, sha256(raw), blake3_hex(raw), len(raw))
    forged = m.Manifest(
        MANIFEST.model,
        MANIFEST.engine,
        MANIFEST.tokens,
        MANIFEST.layout,
        (wanted, MANIFEST.pages[1]),
        MANIFEST.witnesses,
    )
    artifact = Verified(
        verified._seal,
        digest=forged.digest,
        manifest=forged,
        ids=tuple(range(8)),
        signers=(),
        gates=(),
        provenance=None,
        load_page=lambda _: raw,
    )
    with pytest.raises(Corrupt, match="header"):
        artifact.read_page(wanted)


def test_a_page_of_another_manifest_is_corrupt() -> None:
    raw = _page(3)
    other = m.Page("full", 0, 4, sha256(raw), blake3_hex(raw), len(raw))
    with pytest.raises(Corrupt, match="not a page of"):
        _verified({other.digest: raw}).read_page(other)
