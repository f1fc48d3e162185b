"""The proof of a method: right on many instances, for reasons that are its own.

Rules, each of which rejects by name:

- the program gives an answer for every instance, the ends of the ranges included, and the same
  one when it is asked again;
- the checker, which is not the program, says ``True`` to every one of them;
- it says so to the answers of other instances in fewer than half of the cases;
- every slot matters: for each there are instances that differ in it alone and in the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Final, cast

from kvg import canon
from kvg.digest import sha256
from kvg.errors import GateFailed, UsageError
from kvg.frozen import frozen
from kvg.gates.calls import answer_text
from kvg.problem.literals import Literal
from kvg.problem.ranges import SlotRange, draw

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvg.gates.calls import Answer, Called, Caller
    from kvg.problem.family import Problem

SCHEMA: Final = "kvg.proof/1"
INSTANCES: Final = 48
ASKED_AGAIN: Final = 8
TRIES: Final = 40
"""How many drawn instances may fail the constraint for one that meets it."""

Instance = tuple[Literal, ...]


@frozen
class Proof:
    """What was found; ``evidence`` is its document."""

    instances: int
    evidence: bytes


def prove(
    caller: Caller,
    problem: Problem,
    ranges: Sequence[SlotRange],
    program: bytes,
    checker: bytes,
    *,
    holds: Callable[[Sequence[Instance]], Sequence[bool]] | None = None,
    n_instances: int = INSTANCES,
) -> Proof:
    """Prove that ``program`` answers the family of ``problem`` over ``ranges``.

    ``holds`` says which instances meet the constraint. The instances follow from the family, so
    two proofs of the same are alike. Raises ``GateFailed`` naming the rule.
    """
    family = problem.family.digest
    if not ranges:
        raise UsageError("the text has no slot: there is nothing to be parametric in")
    if sha256(program) == sha256(checker):
        raise GateFailed("method: the checker is the program itself")
    random = Random(family)
    instances = _instances(problem, ranges, random, holds, n_instances)
    answers = _answers(caller, program, instances)
    if _answers(caller, program, instances[:ASKED_AGAIN]) != answers[:ASKED_AGAIN]:
        raise GateFailed("method: the program gives another answer when it is asked again")
    _check(caller, checker, instances, answers)
    n_refused = _check_controls(caller, checker, instances, answers)
    changed = _check_slots(caller, program, ranges, random, instances, answers, holds)
    evidence = canon.encode(
        {
            "schema": SCHEMA,
            "family": family,
            "program": sha256(program),
            "checker": sha256(checker),
            "enclosure": caller.enclosure.name,
            "instances": [
                {"slots": [slot.raw for slot in instance], "answer": answer_text(answer)}
                for instance, answer in zip(instances, answers, strict=True)
            ],
            "controls_refused": n_refused,
            "changed_by_slot": list(changed),
        }
    )
    return Proof(len(instances), evidence)


def slot_values(instance: Instance) -> list[Answer]:
    """The values that a program is called with."""
    return [_listed(slot.value) for slot in instance]


def _listed(value: object) -> Answer:
    if isinstance(value, tuple):
        return [_listed(item) for item in value]
    return cast("Answer", value)


def _instances(
    problem: Problem,
    ranges: Sequence[SlotRange],
    random: Random,
    holds: Callable[[Sequence[Instance]], Sequence[bool]] | None,
    n_instances: int,
) -> list[Instance]:
    """The text's own if it is in range, the ends of the ranges, then others; no two are alike."""
    own = all(slot.holds(literal) for slot, literal in zip(ranges, problem.slots, strict=True))
    found: dict[tuple[str, ...], Instance] = {}
    candidates = [problem.slots] if own else []
    n_edges = 4 * len(ranges)
    for n in range(n_instances * (TRIES if holds else 4)):
        edge = n < n_edges
        candidates.append(
            tuple(
                draw(slot, random, edge=edge and (n % 4 < 2 or i == n // 4 % len(ranges)))
                for i, slot in enumerate(ranges)
            )
        )
    if holds is not None:
        met = holds(candidates)
        candidates = [item for item, is_met in zip(candidates, met, strict=True) if is_met]
    for candidate in candidates:
        found.setdefault(tuple(slot.raw for slot in candidate), candidate)
        if len(found) >= n_instances:
            break
    if len(found) < min(n_instances, 8):
        raise GateFailed(
            f"method: only {len(found)} instances are in range and meet the constraint",
            hint="give wider ranges with --slots FILE",
        )
    return list(found.values())


def _answers(caller: Caller, program: bytes, instances: Sequence[Instance]) -> list[Answer]:
    called = caller.call(program, "solve", [slot_values(instance) for instance in instances])
    for instance, item in zip(instances, called, strict=True):
        if item.error is not None:
            raise GateFailed(f"method: the program fails on {_shown(instance)}: {item.error}")
    return [item.value for item in called]


def _check(
    caller: Caller, checker: bytes, instances: Sequence[Instance], answers: Sequence[Answer]
) -> None:
    for instance, answer, item in zip(
        instances, answers, _checked(caller, checker, instances, answers), strict=True
    ):
        if item.error is not None:
            raise GateFailed(f"method: the checker fails on {_shown(instance)}: {item.error}")
        if item.value is not True:
            raise GateFailed(
                f"method: the checker refuses {answer_text(answer)[:80]} for {_shown(instance)}"
            )


def _check_controls(
    caller: Caller, checker: bytes, instances: Sequence[Instance], answers: Sequence[Answer]
) -> int:
    """Offer each instance the answer of another; returns how many were refused."""
    offers = [
        (instance, other)
        for n, (instance, answer) in enumerate(zip(instances, answers, strict=True))
        for other in [_another(answers, n, answer)]
        if other is not None
    ]
    if not offers:
        raise GateFailed("method: one answer for every instance: a constant is baked in")
    checked = _checked(caller, checker, [i for i, _ in offers], [a for _, a in offers])
    n_refused = sum(item.value is not True for item in checked)
    if 2 * n_refused <= len(offers):
        raise GateFailed(
            f"method: the checker accepts {len(offers) - n_refused} of {len(offers)} answers that "
            "belong to other instances: it does not look at what it checks"
        )
    return n_refused


def _another(answers: Sequence[Answer], at: int, answer: Answer) -> Answer:
    """The next answer that differs; None when none does."""
    around = (*answers[at + 1 :], *answers[:at])
    return next((other for other in around if other != answer and other is not None), None)


def _check_slots(
    caller: Caller,
    program: bytes,
    ranges: Sequence[SlotRange],
    random: Random,
    instances: Sequence[Instance],
    answers: Sequence[Answer],
    holds: Callable[[Sequence[Instance]], Sequence[bool]] | None,
) -> tuple[int, ...]:
    """Vary each slot alone; returns for each how often the answer changed."""
    changed = []
    for number, slot in enumerate(ranges):
        pairs = [
            (n, (*instance[:number], draw(slot, random), *instance[number + 1 :]))
            for n, instance in enumerate(instances)
            for _ in range(2)
        ]
        if holds is not None:
            met = holds([varied for _, varied in pairs])
            pairs = [pair for pair, is_met in zip(pairs, met, strict=True) if is_met]
        pairs = [(n, varied) for n, varied in pairs if varied != instances[n]]
        called = caller.call(program, "solve", [slot_values(varied) for _, varied in pairs])
        count = sum(
            item.error is None and item.value != answers[n]
            for (n, _), item in zip(pairs, called, strict=True)
        )
        if count == 0:
            raise GateFailed(
                f"method: slot {number} never changes the answer: a constant is baked in"
            )
        changed.append(count)
    return tuple(changed)


def _checked(
    caller: Caller, checker: bytes, instances: Sequence[Instance], answers: Sequence[Answer]
) -> tuple[Called, ...]:
    calls = [
        [answer, *slot_values(instance)]
        for instance, answer in zip(instances, answers, strict=True)
    ]
    return caller.call(checker, "check", calls)


def _shown(instance: Instance) -> str:
    return ", ".join(slot.raw for slot in instance)[:120]
