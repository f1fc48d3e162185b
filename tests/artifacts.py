"""A tiny synthetic artifact, deposited the way a deposit does it, without a model.

    store, key = make_store(folder)
    made = deposit(store, key, ref="demo")

The steps are those of the deposit flow: pending roots, pages and tokens, manifest, envelopes, one
publication.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kvg.digest import Digest, blake3_hex, sha256, shake256
from kvg.objects import manifest as m
from kvg.objects import page as p
from kvg.objects.manifest import Manifest
from kvg.objects.statement import (
    Provenance,
    Resource,
    TestResult,
    encode_provenance,
    encode_test_result,
)
from kvg.objects.tokens import encode_ids
from kvg.signing.dsse import sign_envelope
from kvg.signing.keys import PrivateKey, from_seed
from kvg.store import ANY, Expectation, Pending, Published, RefMove, Store
from kvg.trust import Keyring

PAGE_TOKENS = 8
WINDOW = 6
VOCAB = 97
NOW = 1764432000
SOURCE = b"a source"

MODEL = m.Model(sha256(b"a model"), "TinyForCausalLM", "BF16")
ENGINE = m.Engine(sha256(b"an engine"), "invariant", None)


def key_of(label: str) -> PrivateKey:
    """The same key for the same label, everywhere."""
    return from_seed(shake256(f"key {label}".encode(), 32))


def make_keyring(folder: Path) -> Keyring:
    return Keyring(folder / "keys")


def make_store(folder: Path, *, label: str = "alice") -> tuple[Store, PrivateKey]:
    """A store in ``folder/.kvg`` with its keyring in ``folder/keys``; one key is trusted."""
    store = Store.init(folder, keyring=make_keyring(folder))
    key = key_of(label)
    store.trust_first(key, now=NOW)
    return store, key


def tiny_layout() -> m.Layout:
    """Four layers in two groups: full, and a sliding window."""
    windows = (None, WINDOW, None, WINDOW)
    specs = [m.LayerSpec(i, "attention", 2, 4, 4, "BF16", w) for i, w in enumerate(windows)]
    return m.Layout(PAGE_TOKENS, m.group_layers(specs))


def page_bytes(group: m.Group, ids: Sequence[int], start: int, end: int) -> bytes:
    """A page of finite values that depend on the tokens before its end, as a real one does."""
    label = f"{group.name} {start} {end} ".encode() + encode_ids(ids[:end])
    size = p.data_size(group, end - start) // 2
    words = struct.unpack(f"<{size}H", shake256(label, 2 * size))
    data = struct.pack(f"<{size}H", *(word & 0xBFFF for word in words))  # exponents stay below 128
    return p.page_header(group, end - start) + data


def witness_at(ids: Sequence[int], position: int) -> m.Witness:
    logits = shake256(b"logits " + encode_ids(ids[: position + 1]), 2 * VOCAB)
    return m.Witness(position, sha256(logits), "BF16", (VOCAB,), 3)


def provenance(uri: str | None = None) -> Provenance:
    return Provenance(
        source=(Resource("handbook.md", sha256(SOURCE), uri),),
        family=None,
        method=None,
        parent=None,
        cut_points=(),
        valid_until=None,
        depends=(),
        kind="text",
        device_class="cpu",
        kernels="0",
        libraries={"torch": "0"},
        model=Resource("tiny", MODEL.fingerprint),
        tokenizer=Resource("tokenizer", sha256(b"a tokenizer")),
        template=None,
        builder="https://kvg.dev/builder",
        started="2025-11-29T16:00:00Z",
        finished="2025-11-29T16:00:01Z",
    )


@dataclass(frozen=True, slots=True)
class Made:
    """What one deposit made. ``page_raw``: each page's raw bytes by digest."""

    digest: Digest
    manifest: Manifest
    ids: tuple[int, ...]
    envelopes: tuple[Digest, ...]
    published: Published
    new_objects: int


def build(
    ids: Sequence[int], cuts: Sequence[int] = ()
) -> tuple[Manifest, dict[Digest, tuple[bytes, int]]]:
    """The manifest of ``ids`` and its pages: digest to (raw bytes, start of the data region)."""
    layout = tiny_layout()
    pages: list[m.Page] = []
    raws: dict[Digest, tuple[bytes, int]] = {}
    for group in layout.groups:
        for start, end in m.needed_pages(group, PAGE_TOKENS, len(ids), cuts):
            raw = page_bytes(group, ids, start, end)
            digest = sha256(raw)
            pages.append(m.Page(group.name, start, end, digest, blake3_hex(raw), len(raw)))
            raws[digest] = (raw, p.data_start(group, end - start))
    witnesses = tuple(witness_at(ids, end - 1) for end in (*cuts, len(ids)))
    tokens = m.Tokens(sha256(encode_ids(ids)), len(ids))
    return Manifest(MODEL, ENGINE, tokens, layout, tuple(pages), witnesses), raws


def put_all(
    pending: Pending, ids: Sequence[int], cuts: Sequence[int] = ()
) -> tuple[Digest, Manifest]:
    """Pages, tokens, then the manifest, each durable before the next."""
    manifest, raws = build(ids, cuts)
    for digest, (raw, data_start) in raws.items():
        pending.put(raw, digest=digest, data_start=data_start, element=2)
    pending.put(encode_ids(ids), digest=manifest.tokens.digest, element=4)
    return pending.put(m.encode_manifest(manifest)).digest, manifest


def deposit(
    store: Store,
    key: PrivateKey | None,
    *,
    ref: str | None = "demo",
    ids: Sequence[int] | None = None,
    cuts: Sequence[int] = (),
    gates: Sequence[TestResult] = (),
    expect: Expectation = ANY,
    uri: str | None = None,
) -> Made:
    """Deposit ``ids`` (27 of them by default), signed by ``key``; unsigned without one.

    ``uri`` is that of its source.
    """
    tokens = tuple(range(5, 32)) if ids is None else tuple(ids)
    with store.pending() as pending:
        digest, manifest = put_all(pending, tokens, cuts)
        pending.put(SOURCE)
        payloads = [encode_provenance(digest, provenance(uri))]
        payloads += [encode_test_result(digest, gate) for gate in gates]
        envelopes = tuple(
            pending.put(sign_envelope(payload, [key])).digest for payload in payloads if key
        )
        moves = [RefMove(ref, digest, expect)] if ref else []
        published = store.record(digest, envelopes, refs=moves, now=NOW)
        return Made(digest, manifest, tokens, envelopes, published, pending.new_objects)


def attest(store: Store, key: PrivateKey, digest: Digest, payload: bytes) -> Digest:
    """Sign ``payload`` and publish it as an attestation of ``digest``."""
    with store.pending() as pending:
        envelope = pending.put(sign_envelope(payload, [key])).digest
        store.record(digest, [envelope], now=NOW)
        return envelope
