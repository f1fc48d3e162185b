"""The gates of a deposit: run before anything is computed, attested once it is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvg.digest import Digest, sha256
from kvg.errors import GateFailed
from kvg.verify.judgement import is_gate_met, required_gates

if TYPE_CHECKING:
    from kvg.flow.requests import DepositRequest
    from kvg.flow.settings import Settings
    from kvg.flow.sources import Source
    from kvg.gates import GateInput, GateOutcome
    from kvg.signing.keys import PrivateKey
    from kvg.store import Pending, Store


def pass_gates(
    store: Store, settings: Settings, request: DepositRequest, source: Source
) -> tuple[GateOutcome, ...]:
    """The outcomes of the gates that ``request`` asks for, all of them passed.

    Raises ``GateFailed`` when one fails, or when the store requires one that is not asked for.
    """
    required = required_gates(store)
    if not request.gates and not required:
        return ()
    from kvg.flow.sandboxed import place_of
    from kvg.gates import parse_spec, run_gate

    specs = [parse_spec(spec) for spec in request.gates]
    missing = [name for name in required if not is_gate_met(name, [spec.gate for spec in specs])]
    if missing:
        raise GateFailed(
            f"{request.ref}: the store requires gates that were not asked for: "
            f"{', '.join(missing)}",
            hint="deposit with --gate SPEC; kvg gate list",
        )
    place = place_of(settings, store, no_sandbox=request.no_sandbox)
    given = gate_input(source, what=request.ref)
    outcomes = []
    for spec in specs:
        outcome = run_gate(spec, given, place)
        outcome.check()
        outcomes.append(outcome)
    return tuple(outcomes)


def gate_input(source: Source, *, what: str) -> GateInput:
    """What gates look at: the text; of a chat that ends with an answer, what went before and it."""
    from kvg.gates import GateInput

    if source.kind != "chat":
        return GateInput(source.text(what=what).encode())
    from kvg.flow.sources import parse_chat

    name, data = source.parts[0]
    parsed = parse_chat(data, what=name)
    messages = [
        (str(item.get("role")), str(item.get("content")))
        for item in (parsed if isinstance(parsed, list) else ())
        if isinstance(item, dict)
    ]
    is_answered = bool(messages) and messages[-1][0] == "assistant"
    asked = "\n".join(content for _, content in (messages[:-1] if is_answered else messages))
    return GateInput(asked.encode(), messages[-1][1].encode() if is_answered else None)


def attest_gates(
    pending: Pending, outcomes: tuple[GateOutcome, ...], manifest: Digest, key: PrivateKey
) -> tuple[Digest, ...]:
    """Store the evidence of ``outcomes``, then what is signed about each; the envelopes."""
    from kvg.objects.statement import Resource, encode_test_result
    from kvg.signing.dsse import sign_envelope

    envelopes = []
    for outcome in outcomes:
        pending.put(outcome.evidence)
        said = outcome.statement(Resource("evidence", sha256(outcome.evidence)))
        payload = encode_test_result(manifest, said)
        envelopes.append(pending.put(sign_envelope(payload, [key])).digest)
    return tuple(envelopes)
