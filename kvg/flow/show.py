"""``kvg show``: one artifact, also under the names of the description that kvg started from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, cast

from kvg import canon
from kvg.flow.attested import Attested, attested, passed_gates
from kvg.flow.records.artifacts import Artifact, Attestation

if TYPE_CHECKING:
    from kvg.objects.manifest import Manifest
    from kvg.objects.statement import Provenance, TestResult
    from kvg.store import Store

DTYPES = {"BF16": "BF16", "F16": "FP16", "F32": "FP32"}
"""How number formats are shown."""

GATE_KINDS = {
    "formalProofChecked": ("proof", "coq", "lean", "z3"),
    "unitTestPass": ("test", "tests", "pytest", "check"),
    "consistencyGated": ("consistency",),
}
"""The kinds of a gate, as its name begins: ``kind`` or ``kind:…``."""


def show(store: Store, target: str) -> Artifact:
    """The artifact ``target``. Raises ``NotFound``, ``Corrupt``, ``Incompatible``."""
    from kvg.objects.manifest import encode_manifest

    digest = store.resolve(target).digest
    manifest = store.manifest(digest, what=target)
    value = cast("Mapping[str, object]", canon.parse_json(encode_manifest(manifest), what=target))
    found = tuple(attested(store, digest))
    family = next((p.family for p in map(_trusted_provenance, found) if p and p.family), None)
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
        family=family,
        family_seed_hash=None,
        gates=passed_gates(found),
        attestations=tuple(_attestation(item) for item in found),
        verification=verification(found),
    )


def verification(found: Iterable[Attested]) -> Mapping[str, object]:
    """The outcome of each kind of check, None where none was run, and the depositor's signature."""
    items = tuple(found)
    outcome: dict[str, object] = {
        name: _outcome(items, kinds) for name, kinds in GATE_KINDS.items()
    }
    deposit = next((item for item in items if _trusted_provenance(item)), None)
    signature = deposit.signature if deposit else None
    outcome["executionSignature"] = signature.hex() if signature else None
    return outcome


def _outcome(found: tuple[Attested, ...], kinds: tuple[str, ...]) -> bool | None:
    results = [item.test_result for item in found if item.signers]
    mine = [r.result for r in results if r is not None and r.gate.partition(":")[0] in kinds]
    return None if not mine else "FAILED" not in mine


def _trusted_provenance(item: Attested) -> Provenance | None:
    return item.provenance if item.signers else None


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


def _attestation(item: Attested) -> Attestation:
    kind, detail = "unknown", {}
    if item.provenance is not None:
        kind, detail = "deposit", _provenance_detail(item.provenance)
    elif item.test_result is not None:
        kind, detail = "test-result", _test_detail(item.test_result)
    return Attestation(item.digest, item.index, kind, item.signers, bool(item.signers), detail)


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
        "device_class": said.device_class,
        "kernels": said.kernels,
        "libraries": dict(said.libraries),
        "builder": said.builder,
        "started": said.started,
        "finished": said.finished,
    }


def _test_detail(said: TestResult) -> dict[str, object]:
    return {"gate": said.gate, "result": said.result, "url": said.url}
