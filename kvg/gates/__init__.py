"""Gates: checks by machine that a deposit passes before it is signed, each in the sandbox."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvg.gates.outcome import GateInput, GateOutcome
    from kvg.gates.run import run_gate
    from kvg.gates.spec import KINDS, Kind, Spec, parse_spec

_HOMES = {
    "GateInput": "kvg.gates.outcome",
    "GateOutcome": "kvg.gates.outcome",
    "KINDS": "kvg.gates.spec",
    "Kind": "kvg.gates.spec",
    "Spec": "kvg.gates.spec",
    "parse_spec": "kvg.gates.spec",
    "run_gate": "kvg.gates.run",
}

__all__ = ("KINDS", "GateInput", "GateOutcome", "Kind", "Spec", "parse_spec", "run_gate")


def __getattr__(name: str) -> object:
    """Import a name's module when it is first asked for: a command pays for what it uses."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(importlib.import_module(_HOMES[name]), name)
