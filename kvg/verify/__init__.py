"""Verification without a model: bytes, signatures, policy and the log. Truth is replay's matter.

Only this package makes a ``Verified``.
"""

from __future__ import annotations

from kvg.verify.artifact import verify_artifact
from kvg.verify.check import (
    ArtifactCheck,
    Finding,
    VerifySummary,
    check_artifact,
    check_log,
    check_objects,
    check_store,
    check_trust,
)
from kvg.verify.judgement import Judgement, is_gate_met, judge, required_gates

__all__ = (
    "ArtifactCheck",
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
    "required_gates",
    "verify_artifact",
)
