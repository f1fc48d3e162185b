"""``kvg solve``: a problem whose family has a method is answered by it, at no generated token."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from kvg.digest import Digest, short
from kvg.errors import GateFailed, NotFound, UsageError
from kvg.flow.records.flywheel import AnswerFound
from kvg.flow.sandboxed import caller_of
from kvg.problem.family import parse_problem
from kvg.problem.literals import Literal, parse_literal

if TYPE_CHECKING:
    from kvg.flow.choice import PassedOver
    from kvg.flow.settings import Settings
    from kvg.gates.calls import Called, Caller
    from kvg.store import Store
    from kvg.store.selector import Selector
    from kvg.verify.method import Verdicts, VerifiedMethod

HIT = "HIT"
MISS = "MISS"
NO_METHOD = "no method for this structure"
NOT_THIS_TEXT = (
    f"{NO_METHOD}, and no trace of just this text: a trace answers the very text that it was made "
    "for, to the character"
)


def solve(
    store: Store,
    settings: Settings,
    text: str,
    *,
    constraint: str | None = None,
    names: Sequence[str] = (),
    require: Sequence[str] = (),
    no_sandbox: bool = False,
    verdicts: Verdicts | None = None,
    caller: Caller | None = None,
    selector: Selector | None = None,
) -> AnswerFound:
    """The answer of the newest method of exactly this family that counts, is fresh and was proved
    for these values; without one, of the stored trace of exactly this text; else a miss, which
    says of each why not. Values that do not meet the constraint are not of the family, whatever
    its methods give.

    No near family is ever taken. A process that solves again gives ``verdicts``, a ``caller`` that
    keeps an enclosure ready, and a ``selector``, which is heeded as long as the log has not grown.
    Raises ``UsageError``, ``Untrusted`` when there are methods and none counts or none passed the
    gates of ``require``, ``GateFailed`` when the method fails on this instance or there is no
    sandbox.
    """
    recall = partial(_recall, store, settings, text, require)
    began = time.perf_counter()
    problem = parse_problem(text, constraint, names)
    family = problem.family.digest
    named = time.perf_counter()
    with _prepared(store, settings, family, is_wanted=not (caller or no_sandbox)) as prepared:
        caller, started = caller or prepared, time.perf_counter()
        chosen = selector.method(family) if selector is not None else None
        members = store.family_members(family) if chosen is None else ()
        selected = time.perf_counter()
        canonical_us, select_us = (named - began) * 1e6, (selected - started) * 1e6
        if chosen is None and not members:
            return _miss(family, canonical_us, select_us, NO_METHOD)
        from kvg.flow.choice import PassedOver, choose_method

        passed_over = PassedOver()
        if chosen is None and not any(item.is_method for item in members):
            return recall(family, canonical_us, select_us, passed_over)
        from kvg.verify.method import Verdicts

        verify = partial((verdicts or Verdicts()).verify, require=require)
        given = problem.slots
        found = _of_view(store, settings, family, given, chosen, selector, verify)
        if found is None:
            found = choose_method(store, settings.cwd, family, given, verify, passed_over)
        verified = time.perf_counter()
        if found is None:
            passed_over.check()
            return recall(family, canonical_us, select_us, passed_over)
        caller = caller or caller_of(settings, store, no_sandbox=no_sandbox)
        what = f"method {short(found.digest)}"
        condition = _condition(constraint, names, problem.slots)
        try:
            answer = run_checked(
                caller, found.program, found.checker, problem.slots, condition=condition, what=what
            )
        except NotFound as unmet:
            passed_over = PassedOver()
            passed_over.note(what, unmet.message)
            return recall(family, canonical_us, select_us, passed_over)
    return AnswerFound(
        status=HIT,
        family=family,
        method=found.digest,
        answer=answer,
        tokens_generated=0,
        canonical_us=canonical_us,
        select_us=select_us,
        verify_us=(verified - selected) * 1e6,
        run_ms=(time.perf_counter() - verified + started - named) * 1e3,
        attestation=found.attestation,
        sandbox=caller.enclosure.name,
        reason=None,
        checked=True,
    )


@contextmanager
def _prepared(
    store: Store, settings: Settings, family: Digest, *, is_wanted: bool
) -> Iterator[Caller | None]:
    """A caller whose enclosure starts while the method is looked up and verified; None where no
    method is in sight. The program is given to it after that, or it is ended unused. What keeps it
    from starting is told by the call that needs one."""
    caller = None
    if is_wanted and store.may_answer(family):
        try:
            caller = caller_of(settings, store, no_sandbox=False)
            caller.prepare()
        except (GateFailed, OSError):
            caller = None
    try:
        yield caller
    finally:
        if caller is not None:
            caller.close()


def _of_view(
    store: Store,
    settings: Settings,
    family: Digest,
    slots: Sequence[Literal],
    chosen: Digest | None,
    selector: Selector | None,
    verify: Callable[[Store, Digest], VerifiedMethod],
) -> VerifiedMethod | None:
    """The method that a held view names, when that view is of now and it answers for ``slots``."""
    from kvg.flow.choice import UNFIT, unfit

    if chosen is None or selector is None or selector.size != store.log.size:
        return None
    try:
        found = verify(store, chosen)
    except UNFIT:
        return None
    return found if unfit(store, settings.cwd, family, slots, found) is None else None


def _recall(
    store: Store,
    settings: Settings,
    text: str,
    require: Sequence[str],
    family: Digest,
    canonical_us: float,
    select_us: float,
    passed_over: PassedOver,
) -> AnswerFound:
    """The answer of the stored trace of this very text, or the miss."""
    from kvg.flow.trace import find_trace

    began = time.perf_counter()
    found = find_trace(store, settings, family, text, passed_over, require=require)
    missed = _miss(family, canonical_us, select_us, passed_over.told(NOT_THIS_TEXT))
    if found is None:
        return missed
    return replace(
        missed,
        status=HIT,
        answer=found.answer,
        artifact=found.verified.digest,
        gates=found.gates,
        verify_us=(time.perf_counter() - began) * 1e6,
        run_ms=0.0,
        attestation=found.attestation,
        reason=None,
    )


def run_method(
    store: Store, settings: Settings, target: str, raw: Sequence[str], *, no_sandbox: bool = False
) -> AnswerFound:
    """Run a stored method on literals given one by one, which may break the family's constraint.

    Raises ``NotFound`` for a stale one, ``UsageError`` out of its ranges.
    """
    from kvg.flow.family import stored_family
    from kvg.flow.freshness import stale_reason
    from kvg.flow.method import verified_method
    from kvg.problem.ranges import outside_of

    began = time.perf_counter()
    slots = tuple(_literal(text) for text in raw)
    found = verified_method(store, target, cwd=settings.cwd, slots=slots)
    verified = time.perf_counter()
    if len(slots) != len(found.method.slots):
        raise UsageError(f"{len(slots)} values for {len(found.method.slots)} slots")
    outside = outside_of(found.method.slots, slots)
    if outside is not None:
        raise UsageError(outside, hint=f"kvg method show {target}")
    stale = stale_reason(store, settings.cwd, found.contract)
    if stale is not None:
        raise NotFound(f"method {short(found.digest)}: {stale}", hint="kvg method add")
    if stored_family(store, found.method.family).constraint is not None:
        settings.report.notice("the family's constraint is not looked at here: kvg solve does that")
    caller = caller_of(settings, store, no_sandbox=no_sandbox)
    what = f"method {short(found.digest)}"
    answer = run_checked(caller, found.program, found.checker, slots, what=what)
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
        checked=True,
    )


def _literal(text: str) -> Literal:
    """A literal as it is typed; what is none is a string."""
    try:
        return parse_literal(text)
    except UsageError:
        return parse_literal(f'"{text}"')


def run_program(caller: Caller, program: bytes, slots: Sequence[Literal], *, what: str) -> str:
    """The answer as text. Raises ``GateFailed`` when the program gives none."""
    from kvg.gates.calls import slot_values

    (called,) = caller.call(program, "solve", [slot_values(slots)])
    return _told(called, what)


def run_checked(
    caller: Caller,
    program: bytes,
    checker: bytes,
    slots: Sequence[Literal],
    *,
    condition: bytes | None = None,
    what: str,
) -> str:
    """The answer as text, once ``checker`` has said True to it.

    Raises ``NotFound`` for values that do not meet ``condition``: nothing was proved of them, and
    the program is not run. ``GateFailed`` when it gives no answer, or one that the checker refuses:
    a program can turn wrong after its proof, by the clock or as it can tell that from its use.
    """
    from kvg.gates.calls import refusal, shown_slots, slot_values

    found = caller.call_checked(program, checker, slot_values(slots), condition=condition)
    if found.answer is None:
        raise NotFound(found.unmet or what)
    answer = _told(found.answer, what)
    refused = refusal(found.answer.value, found.verdict, shown_slots(slots))
    if refused is not None:
        raise GateFailed(
            f"{what}: {refused}", hint="nothing is answered; prove a right one: kvg method add"
        )
    return answer


def _condition(
    constraint: str | None, names: Sequence[str], slots: Sequence[Literal]
) -> bytes | None:
    if constraint is None:
        return None
    from kvg.flow.method import condition_of

    return condition_of(constraint, names, len(slots))


def _told(called: Called, what: str) -> str:
    from kvg.gates.calls import answer_text

    if called.error is not None:
        raise GateFailed(f"{what}: {called.error}")
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
