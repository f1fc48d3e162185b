"""``kvg show``: one artifact, also under the names of the description that kvg started from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from kvg import canon
from kvg.digest import short
from kvg.errors import Corrupt
from kvg.flow.attested import attested
from kvg.flow.freshness import stale_now
from kvg.flow.records.artifacts import Artifact, Attestation

if TYPE_CHECKING:
    from kvg.objects.manifest import Manifest
    from kvg.objects.statement import Provenance, TestResult
    from kvg.store import Store
    from kvg.verify.judgement import Judgement, Opened

DTYPES = {"BF16": "BF16", "F16": "FP16", "F32": "FP32"}
"""How number formats are shown."""

GATE_KINDS = {
    "formalProofChecked": "formal",
    "unitTestPass": "test",
    "consistencyGated": "consistency",
}
"""The kind of a gate is its name, or what stands before its first colon."""


def show(store: Store, target: str, cwd: Path = Path()) -> Artifact:
    """The artifact ``target``; files that it depends on are looked for from ``cwd``, too.

    Raises ``NotFound``, ``Corrupt``, ``Incompatible``.
    """
    from kvg.objects.manifest import encode_manifest

    digest = store.resolve(target).digest
    manifest = store.manifest(digest, what=target)
    value = cast("Mapping[str, object]", canon.parse_json(encode_manifest(manifest), what=target))
    found = attested(store, digest)
    return Artifact(
        digest=digest,
        refs=store.refs_of(digest),
        pinned=digest in store.pins(),
        schema=cast("str", value["schema"]),
        model=cast("Mapping[str, object]", value["model"]),
        engine=cast("Mapping[str, object]", value["engine"]),
        tokens=cast("Mapping[str, object]", value["tokens"]),
        positions=(0, manifest.count),
        layout=cast("Mapping[str, object]", value["layout"]),
        pages=_pages(manifest, cast("Iterable[Mapping[str, object]]", value["pages"])),
        witnesses=tuple(cast("Iterable[Mapping[str, object]]", value["witnesses"])),
        family=found.provenance.family if found.provenance else None,
        family_seed_hash=_seed_hash(store, found.provenance),
        gates=found.gates,
        unenclosed=found.unenclosed,
        attestations=tuple(_attestation(item) for item in found.opened),
        verification=verification(store, found),
        stale=stale_now(store, cwd, found),
    )


def verification(store: Store, found: Judgement) -> Mapping[str, object]:
    """The outcome of each kind of check, None where none was run, and the depositor's signature."""
    outcome: dict[str, object] = {name: _outcome(found, kind) for name, kind in GATE_KINDS.items()}
    outcome["executionSignature"] = _signature(store, found)
    return outcome


def _seed_hash(store: Store, said: Provenance | None) -> str | None:
    """The seed form of the family, where its structure lies in this store."""
    if said is None or said.family is None:
        return None
    from kvg.flow.family import stored_family

    try:
        return stored_family(store, said.family).seed_hash
    except Corrupt:
        return None


def _outcome(found: Judgement, kind: str) -> bool | None:
    if any(gate.partition(":")[0] == kind for gate in found.failed):
        return False
    return True if any(gate.partition(":")[0] == kind for gate in found.gates) else None


def _signature(store: Store, found: Judgement) -> str | None:
    """The first depositor's signature of the deposit, in hex."""
    from kvg.objects.statement import Provenance
    from kvg.signing.dsse import parse_envelope

    for item in found.opened:
        if item.statement is None or not isinstance(item.statement.predicate, Provenance):
            continue
        what = f"attestation {short(item.envelope)}"
        try:
            envelope = parse_envelope(
                bytes(store.objects.read(item.envelope, what=what)), what=what
            )
        except Corrupt:
            continue
        return next((s.sig.hex() for s in envelope.signatures if s.keyid in item.signers), None)
    return None


def _pages(
    manifest: Manifest, values: Iterable[Mapping[str, object]]
) -> tuple[Mapping[str, object], ...]:
    dtypes = {group.name: DTYPES[group.dtype] for group in manifest.layout.groups}
    offsets = dict.fromkeys(dtypes, 0)
    pages = []
    for page, value in zip(manifest.pages, values, strict=True):
        pages.append({**value, "offset": offsets[page.group], "dtype": dtypes[page.group]})
        offsets[page.group] += page.size
    return tuple(pages)


def _attestation(item: Opened) -> Attestation:
    from kvg.objects.statement import Provenance

    said = item.statement.predicate if item.statement else None
    detail: dict[str, object]
    if said is None:
        kind, detail = "unknown", {"claims": item.others, "revoked": item.revoked}
    elif isinstance(said, Provenance):
        kind, detail = "deposit", _provenance_detail(said)
    else:
        kind, detail = "test-result", _test_detail(said)
    return Attestation(item.envelope, item.index, kind, item.signers, bool(item.signers), detail)


def _provenance_detail(said: Provenance) -> dict[str, object]:
    return {
        "kind": said.kind,
        "source": None if said.source is None else tuple(part.name for part in said.source),
        "model": said.model.name,
        "family": said.family,
        "method": said.method,
        "parent": said.parent,
        "cut_points": said.cut_points,
        "valid_until": said.valid_until,
        "depends": tuple(part.name for part in said.depends),
        "schema_version": said.schema_version,
        "device_class": said.device_class,
        "kernels": said.kernels,
        "libraries": dict(said.libraries),
        "builder": said.builder,
        "started": said.started,
        "finished": said.finished,
    }


def _test_detail(said: TestResult) -> dict[str, object]:
    return {
        "gate": said.gate,
        "result": said.result,
        "url": said.url,
        "sandbox": said.sandbox,
    }
