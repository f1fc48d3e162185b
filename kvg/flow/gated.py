"""The gates of a deposit: run before anything is computed, attested once it is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvg.digest import Digest, sha256, short
from kvg.errors import Conflict, GateFailed
from kvg.flow.rejected import check_outcomes
from kvg.parallel import in_order, writers
from kvg.verify.judgement import ALWAYS, required_gates, unmet

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvg.flow.requests import DepositRequest
    from kvg.flow.settings import Settings
    from kvg.flow.sources import Source
    from kvg.gates import GateInput, GateOutcome, Spec
    from kvg.gates.run import Seeded
    from kvg.model.session import Session
    from kvg.model.text import Message, Tokenizer
    from kvg.signing.keys import PrivateKey
    from kvg.store import Pending, Store


def pass_gates(
    store: Store,
    settings: Settings,
    request: DepositRequest,
    source: Source,
    problem: str | None,
    opened: Callable[[], tuple[Session, Tokenizer]],
) -> tuple[GateOutcome, ...]:
    """The outcomes of the gates that ``request`` asks for, all of them passed.

    ``problem`` is what the text answers, if it is said; ``opened`` gives the model, which only some
    gates need. Raises ``GateFailed`` when one fails, or when the store requires one that is not
    asked for.
    """
    required = required_gates(store)
    if not request.gates and not required:
        return ()
    from kvg.flow.asking import seeded
    from kvg.gates import parse_spec

    specs = [parse_spec(spec) for spec in request.gates]
    check_policy(store, [*ALWAYS, *(spec.gate for spec in specs)], what=request.ref)
    given = gate_input(source, problem, what=request.ref)
    asked = seeded(opened, lambda: _asked(source, problem, what=request.ref))
    outcomes = run_gates(store, settings, specs, given, asked, no_sandbox=request.no_sandbox)
    judged = tuple(sha256(part) for part in (given.text, given.answer) if part is not None)
    check_outcomes(store, settings, request.ref, outcomes, judged, request.key)
    return outcomes


def check_answers(
    store: Store, digest: Digest, source: Source, problem: str | None, *, what: str
) -> None:
    """Raise ``Conflict`` where ``digest``, what is stored of these token ids, answers another
    problem, or is another text or chat: what its gates passed would be said of what they never
    looked at. Ids that were not read from a source say nothing of what they mean."""
    from kvg.flow.attested import attested
    from kvg.objects.statement import TestResult
    from kvg.problem.family import parse_problem

    if source.kind == "ids":
        return
    found = attested(store, digest)
    said, other = found.provenance, None
    family = None if problem is None else parse_problem(problem).family.digest
    if family is not None and said is not None and said.family != family:
        other = "to no problem" if said.family is None else f"of family {short(said.family)}"
    given = gate_input(source, problem, what=what)
    asked = None if given.answer is None else sha256(given.text)
    for item in found.opened:
        tested = item.statement.predicate if item.statement is not None else None
        before, answer = tested.judged if isinstance(tested, TestResult) else (None, None)
        is_same = answer == sha256(given.judged) and asked in (None, before)
        if answer is not None and not is_same:
            other = other or "to another problem, or another one, at which its gates looked"
    if other is not None:
        raise Conflict(
            f"{what}: this very text is stored as an answer {other}",
            hint=f"kvg show {digest}; a chat that holds the problem is a text of its own",
        )


def check_policy(
    store: Store,
    gates: Sequence[str],
    *,
    what: str,
    hint: str = "deposit with --gate SPEC; kvg gate list",
) -> None:
    """Raise ``GateFailed`` unless ``gates`` are all that the store requires of a deposit."""
    missing = unmet(required_gates(store), gates)
    if missing:
        raise GateFailed(
            f"{what}: the store requires gates that were not asked for: {', '.join(missing)}",
            hint=hint,
        )


def run_gates(
    store: Store,
    settings: Settings,
    specs: Sequence[Spec],
    given: GateInput,
    asked: Seeded | None,
    *,
    no_sandbox: bool,
) -> tuple[GateOutcome, ...]:
    """The outcomes of ``specs`` up to the first that fails."""
    from kvg.flow.sandboxed import place_of
    from kvg.gates import run_gate

    place = place_of(settings, store, no_sandbox=no_sandbox)
    outcomes: list[GateOutcome] = []
    for spec in specs:
        outcomes.append(run_gate(spec, given, place, seeded=asked).about(given))
        if not outcomes[-1].is_passed:
            break
    return tuple(outcomes)


def _asked(
    source: Source, problem: str | None, *, what: str
) -> tuple[tuple[Message, ...], str | None]:
    """What a model is asked to give the deposited answer, and that answer, where it is told."""
    if source.kind != "chat":
        if problem is None:
            return (), None
        return ({"role": "user", "content": problem},), source.text(what=what)
    messages = source.messages()
    if len(messages) < 2 or messages[-1]["role"] != "assistant":
        return messages, None
    return messages[:-1], messages[-1]["content"]


def gate_input(source: Source, problem: str | None, *, what: str) -> GateInput:
    """What gates look at: the text; of a chat that ends with an answer, what went before and it;
    of a text that answers a problem, the problem and the text."""
    from kvg.gates import GateInput

    if source.kind != "chat":
        text = source.text(what=what).encode()
        return GateInput(text) if problem is None else GateInput(problem.encode(), text)
    messages = source.messages()
    is_answered = messages[-1]["role"] == "assistant"
    asked = "\n".join(item["content"] for item in (messages[:-1] if is_answered else messages))
    return GateInput(asked.encode(), messages[-1]["content"].encode() if is_answered else None)


def attest_gates(
    pending: Pending,
    outcomes: Sequence[GateOutcome],
    manifest: Digest,
    key: PrivateKey,
    *,
    jobs: int = 1,
) -> tuple[Digest, ...]:
    """Store the evidence of ``outcomes``, then what is signed about each; the envelopes."""
    from kvg.objects.statement import Resource, encode_test_result
    from kvg.signing.dsse import sign_envelope

    def attest(outcome: GateOutcome) -> Digest:
        pending.put(outcome.evidence)
        said = outcome.statement(Resource("evidence", sha256(outcome.evidence)))
        payload = encode_test_result(manifest, said)
        return pending.put(sign_envelope(payload, [key])).digest

    return tuple(in_order(attest, outcomes, threads=writers(jobs)))
