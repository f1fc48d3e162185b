"""``kvg solve``: a problem whose family has a method is answered by it, at no generated token."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvg.digest import Digest, short
from kvg.errors import GateFailed, UsageError
from kvg.flow.method import caller_of, newest_method, verified_method
from kvg.flow.records.flywheel import AnswerFound
from kvg.problem.family import parse_problem
from kvg.problem.literals import Literal, parse_literal

if TYPE_CHECKING:
    from kvg.flow.settings import Settings
    from kvg.gates.calls import Caller
    from kvg.store import Store
    from kvg.verify.method import Verdicts, VerifiedMethod

HIT = "HIT"
MISS = "MISS"


def solve(
    store: Store,
    settings: Settings,
    text: str,
    *,
    constraint: str | None = None,
    names: Sequence[str] = (),
    no_sandbox: bool = False,
    verdicts: Verdicts | None = None,
    caller: Caller | None = None,
) -> AnswerFound:
    """The answer of the newest method of exactly this family that counts, or a miss.

    No near family is ever taken. A process that solves again gives ``verdicts``, and a ``caller``
    that keeps an enclosure ready. Raises ``UsageError``, ``Untrusted`` when there are methods and
    none counts, ``GateFailed`` when the method fails on this instance or there is no sandbox.
    """
    began = time.perf_counter()
    problem = parse_problem(text, constraint, names)
    family = problem.family.digest
    named = time.perf_counter()
    members = store.family_members(family)
    selected = time.perf_counter()
    canonical_us, select_us = (named - began) * 1e6, (selected - named) * 1e6
    if not any(item.is_method for item in members):
        return _miss(family, canonical_us, select_us, "no method for this structure")
    from kvg.verify.method import Verdicts

    found = newest_method(store, family, (verdicts or Verdicts()).verify)
    verified = time.perf_counter()
    outside = _outside(found, problem.slots)
    if outside is not None:
        return _miss(family, canonical_us, select_us, outside)
    caller = caller or caller_of(settings, store, no_sandbox=no_sandbox)
    answer = _run(caller, found, problem.slots)
    return AnswerFound(
        status=HIT,
        family=family,
        method=found.digest,
        answer=answer,
        tokens_generated=0,
        canonical_us=canonical_us,
        select_us=select_us,
        verify_us=(verified - selected) * 1e6,
        run_ms=(time.perf_counter() - verified) * 1e3,
        attestation=found.attestation,
        sandbox=caller.enclosure.name,
        reason=None,
    )


def run_method(
    store: Store, settings: Settings, target: str, raw: Sequence[str], *, no_sandbox: bool = False
) -> AnswerFound:
    """Run a stored method on literals given one by one. Raises ``UsageError`` out of its ranges."""
    began = time.perf_counter()
    found = verified_method(store, target)
    verified = time.perf_counter()
    slots = tuple(_literal(text) for text in raw)
    if len(slots) != len(found.method.slots):
        raise UsageError(f"{len(slots)} values for {len(found.method.slots)} slots")
    outside = _outside(found, slots)
    if outside is not None:
        raise UsageError(outside, hint=f"kvg method show {target}")
    caller = caller_of(settings, store, no_sandbox=no_sandbox)
    answer = _run(caller, found, slots)
    return AnswerFound(
        status=HIT,
        family=found.method.family,
        method=found.digest,
        answer=answer,
        tokens_generated=0,
        canonical_us=0.0,
        select_us=0.0,
        verify_us=(verified - began) * 1e6,
        run_ms=(time.perf_counter() - verified) * 1e3,
        attestation=found.attestation,
        sandbox=caller.enclosure.name,
        reason=None,
    )


def _literal(text: str) -> Literal:
    """A literal as it is typed; what is none is a string."""
    try:
        return parse_literal(text)
    except UsageError:
        return parse_literal(f'"{text}"')


def _outside(found: VerifiedMethod, slots: Sequence[Literal]) -> str | None:
    """Which slot's value the method was not proved for."""
    for number, (slot, literal) in enumerate(zip(found.method.slots, slots, strict=True)):
        if not slot.holds(literal):
            name = slot.name or f"s{number}"
            bounds = " to ".join(text or "any" for text in (slot.least, slot.most))
            return f"slot {name}: {literal.raw[:40]} is not a {slot.type} in {bounds}"
    return None


def _run(caller: Caller, found: VerifiedMethod, slots: Sequence[Literal]) -> str:
    """The answer as text. Raises ``GateFailed`` when the method gives none."""
    from kvg.flow.proving import slot_values
    from kvg.gates.calls import answer_text

    (called,) = caller.call(found.program, "solve", [slot_values(tuple(slots))])
    if called.error is not None:
        raise GateFailed(f"method {short(found.digest)}: {called.error}")
    return answer_text(called.value)


def _miss(family: Digest, canonical_us: float, select_us: float, reason: str) -> AnswerFound:
    return AnswerFound(
        status=MISS,
        family=family,
        method=None,
        answer=None,
        tokens_generated=0,
        canonical_us=canonical_us,
        select_us=select_us,
        verify_us=None,
        run_ms=None,
        attestation=None,
        sandbox=None,
        reason=reason,
    )
