"""Golden values, looked at for each release: what is stored, and what a model says after it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvg.digest import Digest, sha256
from kvg.log import merkle
from kvg.log.entry import AttestationEntry, RefEntry, encode_entry
from kvg.objects.manifest import encode_manifest, parse_manifest
from kvg.objects.statement import encode_provenance
from kvg.signing.dsse import sign_envelope
from kvg.store import Store
from kvg.verify import verify_artifact
from tests import artifacts as a

GOLDEN = Path(__file__).parent / "golden.json"
IDS = range(5, 32)
MODEL_IDS = tuple(3 + 7 * i % 500 for i in range(40))
SPOKEN = (79, 409, 148, 148, 136, 409, 307, 106, 307, 507, 173, 96)
"""What the tiny llama in float32 says after ``MODEL_IDS``: its two best are 0.03 apart at least."""


def stored_values(folder: Path) -> dict[str, object]:
    """Digests of everything that a deposit of ``IDS`` writes, and of what the log says of it."""
    store, key = a.make_store(folder)
    made = a.deposit(store, key, ids=IDS, cuts=(13,))
    payload = encode_provenance(made.digest, a.provenance())
    entries = [
        encode_entry(AttestationEntry(a.NOW, made.digest, made.envelopes[0])),
        encode_entry(RefEntry(a.NOW, "demo", made.digest, None)),
    ]
    frontier = merkle.Frontier()
    for entry in entries:
        frontier.append(merkle.leaf_hash(entry))
    return {
        "manifest": made.digest,
        "tokens": made.manifest.tokens.digest,
        "pages": [[page.digest, page.blake3] for page in made.manifest.pages],
        "envelope": sha256(sign_envelope(payload, [a.key_of("golden")])),
        "log root": frontier.root().hex(),
        "stored": [stored_form(store, page.digest) for page in made.manifest.pages],
        "trust": [digest for _, digest in store.trust_versions()],
    }


def stored_form(store: Store, digest: Digest) -> Digest:
    return sha256(store.objects.stored_path(digest).read_bytes())


def test_field_k20_the_bytes_of_a_deposit_are_those_of_the_first_release(tmp_path: Path) -> None:
    assert stored_values(tmp_path) == json.loads(GOLDEN.read_text(encoding="utf-8"))


def test_field_k20_a_manifest_of_the_first_release_is_read_and_written_alike() -> None:
    manifest, _ = a.build(IDS, (13,))
    wanted = json.loads(GOLDEN.read_text(encoding="utf-8"))["manifest"]
    raw = encode_manifest(manifest)
    assert sha256(raw) == wanted and parse_manifest(raw, what="golden") == manifest


def test_field_k11_what_a_graft_loads_is_what_was_deposited(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key, ids=IDS, cuts=(13,))
    artifact = verify_artifact(store, made.digest)
    wanted = json.loads(GOLDEN.read_text(encoding="utf-8"))["pages"]
    loaded = [sha256(artifact.read_page(page)) for page in artifact.manifest.pages]
    assert loaded == [digest for digest, _ in wanted]


@pytest.mark.parametrize("split", [40, 17])
def test_field_k20_greedy_output_is_that_of_the_first_release(
    tiny: dict[str, Path], split: int
) -> None:
    from tests import models

    session = models.session(tiny["llama"], "F32")
    slot, said = session.slot(), []
    if split < len(MODEL_IDS):
        session.run(slot, MODEL_IDS[:split], [split - 1])
    else:
        split = 0
    rest = MODEL_IDS[split:]
    row = session.run(slot, rest, [len(rest) - 1])[0]
    for _ in SPOKEN:
        said.append(int(row.argmax()))
        row = session.run(slot, said[-1:], [0])[0]
    assert tuple(said) == SPOKEN
