"""Records of families, gates, methods and answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from kvg.digest import Digest
from kvg.errors import GateFailed, Inexact, NotFound
from kvg.flow.records.record import Record
from kvg.frozen import frozen


@frozen
class FamilyEntry(Record):
    """One family: the digest of a structure, and the structure.

    ``slots`` are {type, raw, value}; raw and value are None where no instance was asked about.
    ``methods`` and ``artifacts`` are what the store lists for it. ``explained`` says how the
    nearest stored structures differ: {family, parts: {part, here, there}}, None where not asked.
    """

    type: ClassVar[str] = "family"
    family: Digest
    family_seed_hash: str
    text: str
    constraint: object
    slots: tuple[Mapping[str, object], ...]
    methods: tuple[Digest, ...]
    artifacts: tuple[Digest, ...]
    explained: tuple[Mapping[str, object], ...] | None = None


@frozen
class GateKind(Record):
    """A kind of gate that there is, and whether what it needs is installed."""

    type: ClassVar[str] = "gate-kind"
    kind: str
    argument: str
    proves: str
    available: bool
    summary: str


@frozen
class GateResult(Record):
    """One gate that was run. ``evidence`` is its document, ``digest`` the digest of that."""

    type: ClassVar[str] = "gate"
    gate: str
    spec: str
    result: str
    reason: str | None
    configuration: tuple[Mapping[str, object], ...]
    digest: Digest
    evidence: str

    @property
    def exit_code(self) -> int:
        return 0 if self.result == "PASSED" else GateFailed.code


@frozen
class MethodEntry(Record):
    """One stored method. ``slots`` are {type, name, least, most, items, letters, range}: no side of
    what is answered is open, and ``range`` has it in words; ``letters`` are there for strings.

    ``new`` says whether it was stored now; ``attestation`` is the envelope that says it was proved,
    ``signers`` the trusted keys that signed that, ``stale`` why it answers no more, ``sandbox`` in
    what it was proved.
    """

    type: ClassVar[str] = "method"
    method: Digest
    family: Digest
    text: str
    program: Digest
    checker: Digest
    slots: tuple[Mapping[str, object], ...]
    instances: int | None
    new: bool
    attestation: Digest | None
    log_index: int | None
    signers: tuple[str, ...]
    stale: str | None = None
    sandbox: str | None = None


@frozen
class StaleMethod(Record):
    """A method that answers no more, and why; ``attestation`` is its statement."""

    type: ClassVar[str] = "stale-method"
    method: Digest
    family: Digest
    text: str
    attestation: Digest
    log_index: int
    stale: str


@frozen
class AnswerFound(Record):
    """What ``solve`` gives: on a hit by a method or by a stored trace (``artifact``), else by a
    model, if one was to try. On a miss ``reason`` says why.

    Times are of this call: to the canonical form, to the name, to the verdict, the run or the
    model. ``checked`` is whether the method's checker said True to this very answer; where
    ``sandbox`` is none, a program that sets out to can have had that said.
    ``exemplar`` is the block that was grafted before the model tried, ``gates`` what its
    answer or the trace passed, ``learned`` whether that was deposited. ``draft`` tells how a
    forward pass confirmed a trace: {tokens, confirmed, first_difference: {position, stored,
    computed} or null, witness_equal, forward_passes, ms}.
    """

    type: ClassVar[str] = "answer"
    status: str
    family: Digest
    method: Digest | None
    answer: str | None
    tokens_generated: int
    canonical_us: float
    select_us: float
    verify_us: float | None
    run_ms: float | None
    attestation: Digest | None
    sandbox: str | None
    reason: str | None
    checked: bool = False
    artifact: Digest | None = None
    exemplar: Digest | None = None
    gates: tuple[str, ...] = ()
    learned: bool = False
    draft: Mapping[str, object] | None = None

    @property
    def exit_code(self) -> int:
        if self.answer is None:
            return NotFound.code
        return Inexact.code if self.draft and self.draft["first_difference"] else 0
