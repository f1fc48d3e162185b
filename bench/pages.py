"""Artifacts for benchmarks of the exchange: real pages or ones like them, but for the computing."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from kvg.digest import blake3_hex, sha256, shake256
from kvg.log.entry import AttestationEntry
from kvg.objects import manifest as m
from kvg.objects import page as p
from kvg.objects.statement import encode_provenance
from kvg.objects.tokens import encode_ids
from kvg.signing.dsse import sign_envelope
from kvg.store import ANY, RefMove, Store
from tests import artifacts as made

PAGE_TOKENS = 256
LAYERS, HEADS, DIM = 30, 3, 64
"""The shape of SmolLM2-135M: 5.9 MB for a page of 256 tokens."""


def layout() -> m.Layout:
    specs = [m.LayerSpec(i, "attention", HEADS, DIM, DIM, "BF16", None) for i in range(LAYERS)]
    return m.Layout(PAGE_TOKENS, m.group_layers(specs))


class Pages:
    """Page data: real ones from a store, or drawn with the same distribution of exponents."""

    def __init__(self, source: Path | None, size: int) -> None:
        self._size = size
        self._real: list[bytes] = []
        self.kind = "drawn: normal values in bf16"
        if source is not None:
            self._real = list(self._read(source))
            if self._real:
                self.kind = f"real: {len(self._real)} pages of {source.name}, each varied"

    def _read(self, source: Path) -> Iterator[bytes]:
        store = Store.open(source)
        for digest in store.artifacts():
            for page in store.manifest(digest).pages:
                raw = bytes(store.objects.read(page.digest, what="page", size=page.size))
                if len(raw) >= self._size:
                    yield raw[-self._size :]
                if page.size * 16 > 1 << 27:
                    return

    def data(self, number: int) -> bytes:
        """The data of page ``number``: no two alike."""
        if self._real:
            raw = bytearray(self._real[number % len(self._real)])
        else:
            raw = bytearray(_normal(number, self._size))
        raw[:16] = shake256(f"page {number}".encode(), 16)[:16].translate(_SMALL)
        return bytes(raw)


_SMALL = bytes(byte & 0x3F for byte in range(256))


def _normal(number: int, size: int) -> bytes:
    """bf16 values with a normal distribution."""
    draw = Random(number)
    block = bytearray()
    for _ in range(1 << 15):
        block += struct.pack("<f", draw.gauss(0, 1))[2:]
    noise = bytearray(draw.randbytes(size))
    reps = -(-size // len(block))
    high = (bytes(block) * reps)[:size]
    noise[1::2] = high[1::2]
    return bytes(noise)


def deposit(store: Store, key: object, ref: str, ids: Sequence[int], pages: Pages, at: int) -> None:
    """An artifact of whole pages, made as a deposit makes it but for the computing."""
    shape = layout()
    (group,) = shape.groups
    count = len(ids)
    listed: list[m.Page] = []
    with store.pending() as pending:
        for n, start in enumerate(range(0, count, PAGE_TOKENS)):
            end = min(start + PAGE_TOKENS, count)
            raw = (
                p.page_header(group, end - start)
                + pages.data(at + n)[: p.data_size(group, end - start)]
            )
            begin = p.data_start(group, end - start)
            digest = pending.put(raw, data_start=begin, element=2).digest
            listed.append(m.Page(group.name, start, end, digest, blake3_hex(raw), len(raw)))
        tokens = encode_ids(ids)
        pending.put(tokens, digest=sha256(tokens), element=4)
        manifest = m.Manifest(
            made.MODEL,
            made.ENGINE,
            m.Tokens(sha256(tokens), count),
            shape,
            tuple(listed),
            (made.witness_at(ids[-1:], count - 1),),
        )
        _publish(store, key, ref, manifest, pending)


def _publish(store: Store, key: object, ref: str, manifest: m.Manifest, pending: object) -> None:
    raw = m.encode_manifest(manifest)
    digest = pending.put(raw).digest
    pending.put(made.SOURCE)
    envelope = sign_envelope(encode_provenance(digest, made.provenance()), [key])
    name = pending.put(envelope).digest
    store.publish([AttestationEntry(made.NOW, digest, name), RefMove(ref, digest, ANY)])
