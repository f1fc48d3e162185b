"""From a spec to its gate."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kvg.errors import GateFailed
from kvg.gates.consistency import Ask, consistency_gate
from kvg.gates.outcome import GateInput, GateOutcome
from kvg.gates.place import Place
from kvg.gates.spec import CONSISTENCY, KINDS, Spec
from kvg.objects.statement import Resource

Seeded: TypeAlias = Callable[[Spec], "tuple[Ask, tuple[Resource, ...]]"]
"""How a model is asked with seeds what the text asks, and what is attested of that."""


def run_gate(
    spec: Spec, given: GateInput, place: Place, *, seeded: Seeded | None = None
) -> GateOutcome:
    """The outcome of one gate; a check that fails is an outcome, not an error.

    ``seeded`` is the model that gives each seed's answer. Raises ``GateFailed`` when the gate
    can't be run: no sandbox, no prover, no model, or checks that can't fail.
    """
    if spec.kind.proves == CONSISTENCY:
        if seeded is None:
            raise GateFailed(
                f"gate {spec.gate}: needs a model to ask",
                hint="it runs in kvg deposit and kvg solve",
            )
        answer = None if given.answer is None else given.answer.decode("utf-8", "replace")
        ask, source = seeded(spec)
        return consistency_gate(spec, ask, answer, source=source)
    match spec.kind.name:
        case "cmd":
            from kvg.gates.judged import command_gate

            return command_gate(spec, given, place)
        case "pytest":
            from kvg.gates.python import pytest_gate

            return pytest_gate(spec, given, place)
        case "python-assert":
            from kvg.gates.python import assert_gate

            return assert_gate(spec, given, place)
        case "smt":
            from kvg.gates.smt import smt_gate

            return smt_gate(spec, given, place)
        case "coq":
            from kvg.gates.proof import coq_gate

            return coq_gate(spec, given, place)
        case _:
            from kvg.gates.proof import lean_gate

            return lean_gate(spec, given, place)


def is_available(name: str) -> bool:
    """Whether a kind of gate can be run by hand: what it needs is installed, and is no model."""
    import shutil
    from importlib.util import find_spec

    programs = {"coq": "coqc", "lean": "lean"}
    modules = {"smt": "z3", "pytest": "pytest"}
    if name in programs:
        return shutil.which(programs[name]) is not None
    if KINDS[name].proves == CONSISTENCY:
        return False
    return name not in modules or find_spec(modules[name]) is not None
