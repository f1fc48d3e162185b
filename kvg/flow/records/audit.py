"""Records of an audit: everything that can be said of a store without a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from kvg.errors import most_severe
from kvg.flow.records.findings import Finding
from kvg.flow.records.keys import Revoked, TrustEntry
from kvg.flow.records.record import Record
from kvg.flow.records.stores import Cosignature, LogEntry
from kvg.frozen import frozen


@frozen
class Saying(Record):
    """One signed statement; ``result`` is that of a gate or replay, None otherwise.

    ``signers`` are the keys for which it counts, ``revoked`` those that signed it and do not count
    any more, ``untrusted`` those that it names and nobody trusts here: that they signed is not
    known. ``evidence`` maps the names of what it points at to digests; ``envelope`` is its own.
    """

    type: ClassVar[str] = "saying"
    index: int
    envelope: str
    signers: tuple[str, ...]
    kind: str
    result: str | None
    evidence: Mapping[str, str | None]
    revoked: tuple[str, ...] = ()
    untrusted: tuple[str, ...] = ()


@frozen
class AuditedArtifact(Record):
    """One artifact or method; ``stands`` says whether every check that was made held for it,
    ``stale`` why it is given to nobody all the same; ``unenclosed`` are those of ``gates`` that ran
    without a sandbox. ``revoked`` and ``untrusted`` as those of its statements."""

    type: ClassVar[str] = "audited-artifact"
    digest: str
    refs: tuple[str, ...]
    stands: bool
    tokens: int | None
    pages: int | None
    bytes: int | None
    model: str | None
    reference: str | None
    depositors: tuple[str, ...]
    verifiers: tuple[str, ...]
    gates: tuple[str, ...]
    failed: tuple[str, ...]
    said: tuple[Saying, ...]
    deposited: int | None
    stale: str | None = None
    unenclosed: tuple[str, ...] = ()
    is_method: bool = False
    revoked: tuple[str, ...] = ()
    untrusted: tuple[str, ...] = ()


@frozen
class PublishedFigure(Record):
    """One sum of a file of results, and what it rests on.

    ``digest`` is that of the file. ``figures`` are the plain values of the record called ``kind``;
    ``samples`` counts the records with digests of inputs or outputs in the file, ``digests`` lists
    those: of the record itself where it has any, else of every sample beside it.
    """

    type: ClassVar[str] = "published-figure"
    file: str
    digest: str
    kind: str
    figures: Mapping[str, str | int | float | bool | None]
    samples: int
    digests: tuple[str, ...]


@frozen
class Audit(Record):
    """Everything at once. ``timeline`` is the newest part of a log of ``log_size`` entries.

    What can't be told of a damaged store is None; ``findings`` say what is wrong, and ``unchecked``
    what could not be told for it. Where ``log_size`` is None, ``artifacts`` are what the objects
    say by themselves.
    ``growth`` are (time, entries) points over the whole log; ``unchecked`` says in sentences what
    this audit does not answer; ``results`` are the figures of the files that were named. Times are
    Unix seconds by the writers' clocks.
    """

    type: ClassVar[str] = "audit"
    store: str
    origin: str | None
    verifier: str | None
    log_size: int | None
    root: str | None
    audited: int
    objects: int
    bytes: int
    bytes_ok: bool
    signatures_ok: bool
    policy_ok: bool
    required: tuple[str, ...]
    findings: tuple[Finding, ...]
    artifacts: tuple[AuditedArtifact, ...]
    keys: tuple[TrustEntry, ...]
    revoked: tuple[Revoked, ...]
    thresholds: Mapping[str, int]
    trust_version: int | None
    witnesses: tuple[Cosignature, ...]
    timeline: tuple[LogEntry, ...]
    growth: tuple[tuple[int, int], ...]
    unchecked: tuple[str, ...]
    results: tuple[PublishedFigure, ...] = ()

    @property
    def exit_code(self) -> int:
        return most_severe([finding.exit_code for finding in self.findings])
