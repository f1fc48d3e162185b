"""What a gate looks at and how it came out."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kvg import canon
from kvg.canon import Json
from kvg.digest import sha256
from kvg.errors import GateFailed
from kvg.frozen import frozen
from kvg.gates.spec import Spec
from kvg.objects.statement import (
    FAILED,
    PASSED,
    Resource,
    Result,
    TestResult,
    judged_resources,
)

SCHEMA: Final = "kvg.evidence/1"
MAX_LOG_CHARS: Final = 1 << 18


@frozen
class GateInput:
    """The text, and the answer that is judged; without one the text itself is."""

    text: bytes
    answer: bytes | None = None

    @property
    def judged(self) -> bytes:
        return self.text if self.answer is None else self.answer

    def with_judged(self, data: bytes) -> GateInput:
        """The same with something else in the place of what is judged."""
        return GateInput(data) if self.answer is None else GateInput(self.text, data)


@frozen
class GateOutcome:
    """``reason`` is why it failed, empty when it passed. ``evidence`` is a canonical document."""

    gate: str
    result: Result
    reason: str
    evidence: bytes
    configuration: tuple[Resource, ...]

    @property
    def is_passed(self) -> bool:
        return self.result == PASSED

    def check(self) -> None:
        """Raise ``GateFailed`` unless it passed."""
        if not self.is_passed:
            raise GateFailed(
                f"gate {self.gate}: {self.reason}", hint="see what it printed with kvg gate run -v"
            )

    def about(self, given: GateInput) -> GateOutcome:
        """The same, with what it looked at."""
        problem = None if given.answer is None else sha256(given.text)
        judged = judged_resources(problem, sha256(given.judged))
        return replace(self, configuration=(*self.configuration, *judged))

    def statement(self, evidence: Resource) -> TestResult:
        """What is attested, where ``evidence`` is stored."""
        return TestResult(self.result, self.gate, self.configuration, (evidence,))


def make_outcome(
    spec: Spec, reason: str, record: Json, configuration: tuple[Resource, ...]
) -> GateOutcome:
    """The outcome of ``spec``; ``reason`` is empty when it passed, ``record`` what was seen."""
    return outcome_of(spec.gate, spec.text, reason, record, configuration)


def outcome_of(
    gate: str, spec: str, reason: str, record: Json, configuration: tuple[Resource, ...] = ()
) -> GateOutcome:
    """The outcome of a check called ``gate`` that was asked for as ``spec``."""
    evidence = canon.encode(
        {
            "schema": SCHEMA,
            "gate": gate,
            "spec": spec,
            "result": FAILED if reason else PASSED,
            "reason": reason,
            "record": record,
        }
    )
    return GateOutcome(gate, FAILED if reason else PASSED, reason, evidence, configuration)


def log_text(data: bytes) -> str:
    """What was printed, as text for a document."""
    return data.decode("utf-8", "replace")[:MAX_LOG_CHARS]
