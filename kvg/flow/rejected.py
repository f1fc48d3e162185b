"""What is left of a rejected deposit or method: the evidence of its gates, signed and logged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvg import canon
from kvg.digest import Digest, sha256, short
from kvg.errors import Conflict, GateFailed, NoSpace, NotFound, Untrusted
from kvg.flow.settings import attesting_key
from kvg.objects.statement import FAILED, REJECTION_GATE, Resource, TestResult, encode_test_result
from kvg.problem.method import METHOD_GATE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvg.flow.proving import Proof
    from kvg.flow.settings import Settings
    from kvg.gates import GateOutcome
    from kvg.gates.calls import Caller
    from kvg.problem.family import Problem
    from kvg.problem.ranges import SlotRange
    from kvg.store import Store

SCHEMA = "kvg.rejection/1"


def check_outcomes(
    store: Store,
    settings: Settings,
    ref: str,
    outcomes: Sequence[GateOutcome],
    judged: Sequence[Digest],
    key: str | None,
) -> None:
    """Raise ``GateFailed`` for the first of ``outcomes`` that did not pass.

    The evidence of all of them is kept first, so that it can be looked at. ``judged`` are the
    digests of what was judged.
    """
    failed = next((item for item in outcomes if not item.is_passed), None)
    if failed is None:
        return
    hint = "see what it printed with kvg gate run -v"
    if not settings.dry_run:
        try:
            _keep(store, settings, ref, outcomes, judged, key)
            hint = f"its evidence: kvg cat {sha256(failed.evidence)}"
        except (Conflict, NoSpace, NotFound, Untrusted) as error:
            settings.report.warning(f"{ref}: the evidence was not kept: {error.message}")
    raise GateFailed(f"gate {failed.gate}: {failed.reason}", hint=hint)


def prove_or_reject(
    store: Store,
    settings: Settings,
    caller: Caller,
    problem: Problem,
    ranges: Sequence[SlotRange],
    sources: tuple[bytes, bytes],
    condition: bytes | None,
    key: str | None,
) -> Proof:
    """The proof of a method with ``sources``, program and checker.

    Raises ``GateFailed`` naming the rule that it breaks; what was seen is kept first.
    """
    from kvg.flow.proving import MethodRejected, prove
    from kvg.gates.outcome import GateOutcome

    try:
        return prove(caller, problem, ranges, *sources, condition=condition, report=settings.report)
    except MethodRejected as error:
        seen = GateOutcome(METHOD_GATE, FAILED, error.reason, error.evidence, ())
    judged = tuple(sha256(source) for source in sources)
    check_outcomes(store, settings, method_of(problem), (seen,), judged, key)
    raise GateFailed(f"gate {METHOD_GATE}: {seen.reason}")


def method_of(problem: Problem) -> str:
    """What messages call a method that is not stored."""
    return f"method of {short(problem.family.digest)}"


def _keep(
    store: Store,
    settings: Settings,
    ref: str,
    outcomes: Sequence[GateOutcome],
    judged: Sequence[Digest],
    key: str | None,
) -> None:
    from kvg.signing.dsse import sign_envelope

    document = canon.encode(
        {
            "schema": SCHEMA,
            "ref": ref,
            "judged": list(judged),
            "gates": [
                {"gate": item.gate, "result": item.result, "evidence": sha256(item.evidence)}
                for item in outcomes
            ],
        }
    )
    said = TestResult(
        FAILED,
        REJECTION_GATE,
        tuple(Resource(f"{item.gate}: {item.result}") for item in outcomes),
        tuple(Resource(item.gate, sha256(item.evidence)) for item in outcomes),
    )
    signer = attesting_key(settings, store, key)
    with store.pending() as pending:
        for item in outcomes:
            pending.put(item.evidence)
        subject = pending.put(document).digest
        payload = encode_test_result(subject, said)
        envelope = pending.put(sign_envelope(payload, [signer])).digest
        store.record(subject, [envelope])
