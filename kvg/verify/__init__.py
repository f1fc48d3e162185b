"""Verification without a model: bytes, signatures, policy and the log. Truth is replay's matter.

Only this package makes a ``Verified``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvg.verify.artifact import verify_artifact, verify_to_replay
    from kvg.verify.artifact_check import ArtifactCheck, ArtifactRequest, check_artifact
    from kvg.verify.check import (
        VerifySummary,
        check_log,
        check_objects,
        check_store,
        check_trust,
    )
    from kvg.verify.findings import Finding
    from kvg.verify.judgement import Judgement, is_gate_met, judge, required_gates
    from kvg.verify.received import judge_received

_HOMES = {
    "ArtifactCheck": "kvg.verify.artifact_check",
    "ArtifactRequest": "kvg.verify.artifact_check",
    "Finding": "kvg.verify.findings",
    "Judgement": "kvg.verify.judgement",
    "VerifySummary": "kvg.verify.check",
    "check_artifact": "kvg.verify.artifact_check",
    "check_log": "kvg.verify.check",
    "check_objects": "kvg.verify.check",
    "check_store": "kvg.verify.check",
    "check_trust": "kvg.verify.check",
    "is_gate_met": "kvg.verify.judgement",
    "judge": "kvg.verify.judgement",
    "judge_received": "kvg.verify.received",
    "required_gates": "kvg.verify.judgement",
    "verify_artifact": "kvg.verify.artifact",
    "verify_to_replay": "kvg.verify.artifact",
}

__all__ = (
    "ArtifactCheck",
    "ArtifactRequest",
    "Finding",
    "Judgement",
    "VerifySummary",
    "check_artifact",
    "check_log",
    "check_objects",
    "check_store",
    "check_trust",
    "is_gate_met",
    "judge",
    "judge_received",
    "required_gates",
    "verify_artifact",
    "verify_to_replay",
)


def __getattr__(name: str) -> object:
    """Import a name's module when it is first asked for: a command pays for what it uses."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(importlib.import_module(_HOMES[name]), name)
