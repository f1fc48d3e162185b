"""Records of what an artifact holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from kvg.digest import Digest
from kvg.flow.records.record import Record
from kvg.frozen import frozen


@frozen
class Attestation(Record):
    """One signed statement: ``kind`` is deposit, test-result or unknown.

    ``signers`` are the trusted keys that signed it; ``trusted`` says whether it counts.
    """

    type: ClassVar[str] = "attestation"
    digest: Digest
    log_index: int
    kind: str
    signers: tuple[str, ...]
    trusted: bool
    detail: Mapping[str, object]


@frozen
class Artifact(Record):
    """One artifact: its manifest, what is attested, and the names of the first description.

    ``pages`` carry ``offset``, the page's place in its group's sequence of data, and ``dtype`` as
    FP16, BF16 or FP32. ``verification`` values are None where nothing was run. ``stale`` says why
    it counts no more, None when it is fresh. ``unenclosed`` are those of ``gates`` that ran without
    a sandbox.
    """

    type: ClassVar[str] = "artifact"
    digest: Digest
    refs: tuple[str, ...]
    pinned: bool
    schema: str
    model: Mapping[str, object]
    engine: Mapping[str, object]
    tokens: Mapping[str, object]
    positions: tuple[int, int]
    layout: Mapping[str, object]
    pages: tuple[Mapping[str, object], ...]
    witnesses: tuple[Mapping[str, object], ...]
    family: str | None
    family_seed_hash: str | None
    gates: tuple[str, ...]
    attestations: tuple[Attestation, ...]
    verification: Mapping[str, object]
    stale: str | None = None
    unenclosed: tuple[str, ...] = ()


@frozen
class Difference(Record):
    """One field in which two artifacts differ."""

    type: ClassVar[str] = "difference"
    field: str
    a: object
    b: object


@frozen
class DiffSummary(Record):
    """Two artifacts compared; ``common_tokens`` is the length of the prefix that they share."""

    type: ClassVar[str] = "diff-summary"
    a: Digest
    b: Digest
    same: bool
    common_tokens: int
    common_pages: int
    only_a_pages: int
    only_b_pages: int


@frozen
class ObjectBytes(Record):
    """The raw bytes of an object, for JSON in base64."""

    type: ClassVar[str] = "object"
    digest: Digest
    size: int
    base64: str
