"""Gates: checks by machine that a deposit passes before it is signed, each in the sandbox."""

from kvg.gates.outcome import GateInput, GateOutcome
from kvg.gates.run import run_gate
from kvg.gates.spec import KINDS, Kind, Spec, parse_spec

__all__ = ["KINDS", "GateInput", "GateOutcome", "Kind", "Spec", "parse_spec", "run_gate"]
