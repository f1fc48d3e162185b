"""What is attested about an artifact, and by whom: read from its envelopes, signatures checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvg.digest import Digest, short
from kvg.errors import Corrupt, Incompatible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvg.objects.statement import Provenance, Statement, TestResult
    from kvg.store import LoggedAttestation, Store
    from kvg.trust import TrustFile


@dataclass(frozen=True, slots=True)
class Attested:
    """One envelope. ``statement`` is None for one that this kvg cannot read.

    ``signers`` are the key ids of trusted keys with a valid signature that counts at this position
    of the log; nothing that is said by nobody trusted is to be believed.
    """

    digest: Digest
    index: int
    statement: Statement | None
    signers: tuple[str, ...]
    signature: bytes | None

    @property
    def provenance(self) -> Provenance | None:
        from kvg.objects.statement import Provenance

        found = self.statement.predicate if self.statement else None
        return found if isinstance(found, Provenance) else None

    @property
    def test_result(self) -> TestResult | None:
        from kvg.objects.statement import TestResult

        found = self.statement.predicate if self.statement else None
        return found if isinstance(found, TestResult) else None


def attested(store: Store, subject: Digest) -> Iterator[Attested]:
    """The attestations of ``subject``, in the order of the log. Damaged ones are passed over."""
    trust = store.trust
    for logged in store.attestations(subject):
        found = _read(store, trust, subject, logged)
        if found is not None:
            yield found


def passed_gates(found: tuple[Attested, ...]) -> tuple[str, ...]:
    """The gates that trusted keys saw pass and none saw fail, sorted."""
    passed: set[str] = set()
    failed: set[str] = set()
    for item in found:
        outcome = item.test_result
        if outcome is not None and item.signers:
            (failed if outcome.result == "FAILED" else passed).add(outcome.gate)
    return tuple(sorted(passed - failed))


def _read(
    store: Store, trust: TrustFile, subject: Digest, logged: LoggedAttestation
) -> Attested | None:
    from kvg.objects.statement import parse_statement
    from kvg.signing.dsse import parse_envelope, signers

    what = f"attestation {short(logged.envelope)}"
    try:
        raw = bytes(store.objects.read(logged.envelope, what=what))
        envelope = parse_envelope(raw, what=what)
    except Corrupt:
        return None
    keys = [key.public for key in trust.keys]
    signed = tuple(
        key.keyid
        for key in signers(envelope, keys)
        if trust.counts(key.keyid, store.log.origin, logged.index)
    )
    try:
        statement = parse_statement(envelope.payload, what=what)
    except (Corrupt, Incompatible):
        statement = None
    if statement is not None and statement.subject != subject:
        return None
    first = next((item.sig for item in envelope.signatures if item.keyid in signed), None)
    return Attested(logged.envelope, logged.index, statement, signed, first)
