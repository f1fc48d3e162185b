"""The proof of a method: right on many instances, for reasons that are its own.

Rules, each of which rejects by name:

- the program gives an answer for every instance, the ends of the ranges included, and the same
  one when it is asked again, and when it is asked as in use: each alone, in a sandbox of its own;
- the checker, which has nothing of the program in it that ``shared_part`` finds, says ``True`` to
  every one of them;
- it says so to the answers of other instances in fewer than half of the cases;
- every slot matters: for each there are instances that differ in it alone and in the answer, and
  those answers are right as well;
- all of that is done within ``MAX_PROOF_S``.

The instances follow from the family and a number that is drawn anew for each proof: a program
can't know them. The evidence holds both, so that the proof can be run again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kvg import canon
from kvg.digest import sha256
from kvg.errors import GateFailed, UsageError
from kvg.frozen import frozen
from kvg.gates.calls import answer_text, is_same, refusal, shown_slots, slot_values, unmet
from kvg.problem.independence import shared_part
from kvg.problem.literals import Literal
from kvg.problem.ranges import End, SlotRange, draw
from kvg.report import SilentReport

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvg.canon import Json
    from kvg.gates.calls import Answer, Called, Caller
    from kvg.problem.family import Problem
    from kvg.report import Report, Task

SCHEMA: Final = "kvg.proof/1"
INSTANCES: Final = 48
MAX_SLOTS: Final = 64
MAX_PARTS: Final = 100_000
"""Of how many elements and characters the values of one instance may be made."""
ASKED_AGAIN: Final = 8
ASKED_ALONE: Final = 4
TRIES: Final = 40
"""How many drawn instances may fail the constraint for one that meets it."""
MAX_PROOF_S: Final = 300.0
"""How long the calls of one proof may take, all together."""
_TOGETHER: Final = 48
"""How many calls share the time of one enclosure."""

_SOURCES: Final = {"holds": "constraint", "solve": "program", "check": "checker"}

Instance = tuple[Literal, ...]


@frozen
class Proof:
    """What was found; ``evidence`` is its document."""

    instances: int
    evidence: bytes


class MethodRejected(GateFailed):
    """A method broke a rule; ``evidence`` is the document of what was seen until then."""

    def __init__(self, reason: str, evidence: bytes) -> None:
        super().__init__(f"method: {reason}", hint="change it, or the ranges: --slots FILE")
        self.reason = reason
        self.evidence = evidence


class _Broken(Exception):
    """Which rule was broken, and how."""


def prove(
    caller: Caller,
    problem: Problem,
    ranges: Sequence[SlotRange],
    program: bytes,
    checker: bytes,
    *,
    condition: bytes | None = None,
    n_instances: int = INSTANCES,
    seed: str | None = None,
    report: Report | None = None,
) -> Proof:
    """Prove that ``program`` answers the family of ``problem`` over ``ranges``.

    ``holds`` of the program ``condition`` says which instances meet the constraint; ``seed`` is
    that of an earlier proof, to run it again; ``report`` is told how far it is. Raises
    ``MethodRejected`` naming the rule, ``GateFailed`` without a sandbox.
    """
    check_provable(ranges)
    seed = os.urandom(16).hex() if seed is None else seed
    trial = _Trial(caller, problem, ranges, program, checker, condition, seed)
    steps = (report or SilentReport()).task("prove", trial.n_steps, "steps")
    try:
        with steps:
            trial.run(n_instances, steps)
    except _Broken as broken:
        raise MethodRejected(str(broken), trial.document(str(broken))) from None
    return Proof(len(trial.instances), trial.document(""))


def check_provable(ranges: Sequence[SlotRange]) -> None:
    """Raise ``UsageError`` where nothing over ``ranges`` can be a method."""
    if not ranges:
        raise UsageError("the text has no slot: there is nothing to be parametric in")
    if len(ranges) > MAX_SLOTS:
        raise UsageError(f"{len(ranges)} slots: more than the {MAX_SLOTS} of a method")
    parts = sum(slot.most_parts() for slot in ranges)
    if parts > MAX_PARTS:
        raise UsageError(
            f"values of up to {parts:,} elements and characters: at most {MAX_PARTS:,} can be "
            "proved",
            hint="give shorter ranges in --slots FILE",
        )


class _Trial:
    """One proof as it goes on."""

    def __init__(
        self,
        caller: Caller,
        problem: Problem,
        ranges: Sequence[SlotRange],
        program: bytes,
        checker: bytes,
        condition: bytes | None,
        seed: str,
    ) -> None:
        self._caller, self._problem, self._ranges = caller, problem, ranges
        self._program, self._checker, self._condition = program, checker, condition
        self._seed = seed
        from random import Random

        self._random = Random(f"{problem.family.digest} {seed}")
        self.instances: list[Instance] = []
        self._answers: list[Answer] = []
        self._n_refused: int | None = None
        self._unmet = ""
        self._changed: list[int] = []
        self._spent_s = dict.fromkeys(_SOURCES, 0.0)

    @property
    def n_steps(self) -> int:
        """How often ``run`` says that it is further."""
        return 4 + len(self._ranges)

    def run(self, n_instances: int, steps: Task) -> None:
        """Raises ``_Broken`` at the first rule that does not hold."""
        shared = shared_part(self._program, self._checker)
        if shared is not None:
            raise _Broken(f"the checker {shared}")
        self.instances = self._drawn(n_instances)
        steps.advance(1)
        self._answers = self._solved(self.instances)
        again = self._solved(self.instances[:ASKED_AGAIN])
        if not all(map(is_same, again, self._answers)):
            raise _Broken("the program gives another answer when it is asked again")
        steps.advance(1)
        self._ask_as_in_use()
        steps.advance(1)
        self._check(self.instances, self._answers)
        self._check_controls()
        steps.advance(1)
        for number in range(len(self._ranges)):
            self._check_slot(number)
            steps.advance(1)

    def _ask_as_in_use(self) -> None:
        """A program that can tell the proof from its use has to be right in both, and its checker
        has to say so."""
        from random import Random

        n = len(self.instances)
        for at in Random(f"alone {self._seed}").sample(range(n), min(ASKED_ALONE, n)):
            values = slot_values(self.instances[at])
            with self._timed("solve"):
                found = self._caller.call_checked(
                    self._program, self._checker, values, condition=self._condition
                )
            answer = found.answer
            if answer is None or answer.error or not is_same(answer.value, self._answers[at]):
                shown = shown_slots(self.instances[at])
                raise _Broken(f"the program gives another answer for {shown} when it is used")
            self._check_said(self.instances[at], answer.value, found.verdict)

    def document(self, broken: str) -> bytes:
        """What was seen, canonical; ``broken`` is the rule that did not hold, if one did not."""
        asked = [[slot.raw for slot in instance] for instance in self.instances]
        answers: list[Json] = [answer_text(answer) for answer in self._answers]
        answers += [None] * (len(asked) - len(answers))
        return canon.encode(
            {
                "schema": SCHEMA,
                "family": self._problem.family.digest,
                "program": sha256(self._program),
                "checker": sha256(self._checker),
                "enclosure": self._caller.enclosure.name,
                "seed": self._seed,
                "broken": broken,
                "instances": [
                    {"slots": slots, "answer": answer}
                    for slots, answer in zip(asked, answers, strict=True)
                ],
                "controls_refused": self._n_refused,
                "changed_by_slot": list(self._changed),
            }
        )

    def _drawn(self, n_instances: int) -> list[Instance]:
        """The text's own if it is in range, both ends of every range, others; no two alike."""
        found: dict[tuple[str, ...], Instance] = {}
        groups = list(self._candidates(n_instances))
        are_met = iter(self._are_met([tried for group in groups for tried in group]))
        for group in groups:
            met = [tried for tried in group if next(are_met)]
            for chosen in met[:1]:
                found.setdefault(tuple(slot.raw for slot in chosen), chosen)
            if len(found) >= max(n_instances, 3 + 2 * len(self._ranges)):
                break
        if len(found) < min(n_instances, 8):
            why = f"; {self._unmet}" if self._unmet else ""
            raise _Broken(f"only {len(found)} instances are in range and meet the constraint{why}")
        return list(found.values())

    def _candidates(self, n_instances: int) -> Iterator[Sequence[Instance]]:
        """Groups of candidates, of each of which the first that meets the constraint is taken: so
        every end has its turn, however many of the others meet it."""
        own = self._problem.slots
        if all(slot.holds(literal) for slot, literal in zip(self._ranges, own, strict=True)):
            yield (own,)
        ends: tuple[End, ...] = ("least", "most")
        for end in ends:
            yield (tuple(draw(slot, self._random, end=end) for slot in self._ranges),)
        for at in range(len(self._ranges)):
            for end in ends:
                yield [self._one(at, end) for _ in range(TRIES if self._condition else 1)]
        for _ in range(n_instances * (TRIES if self._condition else 4)):
            yield (self._one(None, None),)

    def _one(self, at: int | None, end: End | None) -> Instance:
        return tuple(
            draw(slot, self._random, end=end if number == at else None)
            for number, slot in enumerate(self._ranges)
        )

    def _met(self, candidates: Sequence[Instance]) -> list[Instance]:
        """Those that meet the constraint."""
        met = self._are_met(candidates)
        return [item for item, is_met in zip(candidates, met, strict=True) if is_met]

    def _are_met(self, candidates: Sequence[Instance]) -> Sequence[bool]:
        if self._condition is None:
            return [True] * len(candidates)
        calls = [slot_values(item) for item in candidates]
        called = self._called(self._condition, "holds", calls)
        for candidate, item in zip(candidates, called, strict=True):
            if item.error is not None:
                self._unmet = self._unmet or f"for {shown_slots(candidate)} {item.error}"
        return [unmet(item) is None for item in called]

    def _solved(self, instances: Sequence[Instance]) -> list[Answer]:
        calls = [slot_values(instance) for instance in instances]
        called = self._called(self._program, "solve", calls)
        for instance, item in zip(instances, called, strict=True):
            if item.error is not None:
                raise _Broken(f"the program fails on {shown_slots(instance)}: {item.error}")
        return [item.value for item in called]

    def _called(self, source: bytes, name: str, calls: Sequence[Sequence[Answer]]) -> list[Called]:
        found: list[Called] = []
        for start in range(0, len(calls), _TOGETHER):
            with self._timed(name):
                found += self._caller.call(source, name, calls[start : start + _TOGETHER])
        return found

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        """Count the time of calls of the function ``name``, and end the proof when it is over."""
        began = time.monotonic()
        yield
        self._spent_s[name] += time.monotonic() - began
        if sum(self._spent_s.values()) > MAX_PROOF_S:
            seconds, slow = max((spent, name) for name, spent in self._spent_s.items())
            raise _Broken(
                f"not proved within {MAX_PROOF_S:.0f} seconds: calls of the {_SOURCES[slow]} "
                f"took {seconds:.0f}"
            )

    def _checked(self, instances: Sequence[Instance], answers: Sequence[Answer]) -> list[Called]:
        pairs = zip(instances, answers, strict=True)
        calls = [[answer, *slot_values(instance)] for instance, answer in pairs]
        return self._called(self._checker, "check", calls)

    def _check(self, instances: Sequence[Instance], answers: Sequence[Answer]) -> None:
        said = self._checked(instances, answers)
        for instance, answer, item in zip(instances, answers, said, strict=True):
            self._check_said(instance, answer, item)

    def _check_said(self, instance: Instance, answer: Answer, verdict: Called | None) -> None:
        refused = refusal(answer, verdict, shown_slots(instance))
        if refused is not None:
            raise _Broken(refused)

    def _check_controls(self) -> None:
        """Offer each instance the answer of another."""
        offers = [
            (instance, other)
            for n, (instance, answer) in enumerate(zip(self.instances, self._answers, strict=True))
            for other in [_another(self._answers, n, answer)]
            if other is not None
        ]
        if not offers:
            raise _Broken("one answer for every instance: a constant is baked in")
        checked = self._checked([i for i, _ in offers], [a for _, a in offers])
        self._n_refused = sum(item.value is not True for item in checked)
        if 2 * self._n_refused <= len(offers):
            raise _Broken(
                f"the checker accepts {len(offers) - self._n_refused} of {len(offers)} answers "
                "that belong to other instances: it does not look at what it checks"
            )

    def _check_slot(self, number: int) -> None:
        """Vary one slot alone: the answers change, and are right."""
        slot = self._ranges[number]
        pairs = [
            (answer, (*instance[:number], draw(slot, self._random), *instance[number + 1 :]))
            for instance, answer in zip(self.instances, self._answers, strict=True)
            for _ in range(2)
        ]
        met = {tuple(item.raw for item in varied) for varied in self._met([v for _, v in pairs])}
        pairs = [pair for pair in pairs if tuple(item.raw for item in pair[1]) in met]
        varied = [instance for _, instance in pairs]
        answers = self._solved(varied)
        self._changed.append(
            sum(_differ(new, old) for new, (old, _) in zip(answers, pairs, strict=True))
        )
        if self._changed[-1] == 0:
            raise _Broken(f"slot {number} never changes the answer: a constant is baked in")
        self._check(varied, answers)


def _another(answers: Sequence[Answer], at: int, answer: Answer) -> Answer:
    """The next answer that differs; None when none does."""
    around = (*answers[at + 1 :], *answers[:at])
    found = (other for other in around if other is not None and _differ(other, answer))
    return next(found, None)


def _differ(one: Answer, other: Answer) -> bool:
    """Whether two answers are of another value: not as a NaN is another one each time, nor as the
    same number with more zeros is."""
    return one != other and not is_same(one, other)
