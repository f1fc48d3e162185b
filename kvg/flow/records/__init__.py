"""What a flow gives back: the records that scripts rely on.

Field names are the keys of the JSON output; ``type`` names the record there. A record never knows
how it is shown. ``exit_code`` is 0 unless the record itself is a finding that decides the code.
Each name is imported from its module when it is first used: a command pays for its own records.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from kvg.flow.records.record import SCHEMA_VERSION, Record

if TYPE_CHECKING:
    from kvg.flow.records.artifacts import (
        Artifact,
        Attestation,
        Difference,
        DiffSummary,
        ObjectBytes,
    )
    from kvg.flow.records.audit import Audit, AuditedArtifact, Saying
    from kvg.flow.records.bench import (
        BenchSetup,
        ExactnessRow,
        ExactnessRun,
        ExactnessSummary,
        KeysMoved,
        LogitsMoved,
        OwnPositionSummary,
    )
    from kvg.flow.records.computed import (
        Deposited,
        DepositPlan,
        Graft,
        Logits,
        Replay,
        ReplaySummary,
        TextPiece,
    )
    from kvg.flow.records.exchange import (
        BundleEntry,
        BundleSummary,
        LockEntry,
        OfferedKey,
        RemoteEntry,
        RemoteRefEntry,
        Transfer,
        TransferRef,
    )
    from kvg.flow.records.findings import Finding, VerifySummary
    from kvg.flow.records.flywheel import (
        AnswerFound,
        FamilyEntry,
        GateKind,
        GateResult,
        MethodEntry,
    )
    from kvg.flow.records.keys import (
        KeyEntry,
        PublicText,
        Rekeyed,
        Revoked,
        Threshold,
        TrustEntry,
        TrustSummary,
    )
    from kvg.flow.records.models import DoctorCheck, DoctorSummary, ModelEntry
    from kvg.flow.records.prereg import (
        Prereg,
        PreregSample,
        PreregSummary,
    )
    from kvg.flow.records.program import ConfigEntry, HelpText, Version
    from kvg.flow.records.refs import Name, Pinned, RefEntry, RefMoved
    from kvg.flow.records.status import RemoteState, Status
    from kvg.flow.records.stores import (
        CheckedReceipt,
        Cosignature,
        Initialised,
        LogCheckpoint,
        LogEntry,
        Reindexed,
    )
    from kvg.flow.records.upkeep import (
        Collected,
        Forgotten,
        FsckSummary,
        QuotaState,
        Remaining,
        Repaired,
        Stats,
        Usage,
        UsageSummary,
    )

_HOMES = {
    "BundleEntry": "exchange",
    "BundleSummary": "exchange",
    "BenchSetup": "bench",
    "Prereg": "prereg",
    "PreregSample": "prereg",
    "PreregSummary": "prereg",
    "ExactnessRun": "bench",
    "ExactnessRow": "bench",
    "ExactnessSummary": "bench",
    "KeysMoved": "bench",
    "LogitsMoved": "bench",
    "OwnPositionSummary": "bench",
    "AnswerFound": "flywheel",
    "MethodEntry": "flywheel",
    "Artifact": "artifacts",
    "Audit": "audit",
    "AuditedArtifact": "audit",
    "Saying": "audit",
    "Attestation": "artifacts",
    "CheckedReceipt": "stores",
    "Cosignature": "stores",
    "Collected": "upkeep",
    "ConfigEntry": "program",
    "DepositPlan": "computed",
    "Deposited": "computed",
    "DiffSummary": "artifacts",
    "Difference": "artifacts",
    "DoctorCheck": "models",
    "DoctorSummary": "models",
    "FamilyEntry": "flywheel",
    "Finding": "findings",
    "GateKind": "flywheel",
    "GateResult": "flywheel",
    "Forgotten": "upkeep",
    "FsckSummary": "upkeep",
    "Graft": "computed",
    "HelpText": "program",
    "Initialised": "stores",
    "KeyEntry": "keys",
    "LogCheckpoint": "stores",
    "LockEntry": "exchange",
    "LogEntry": "stores",
    "Logits": "computed",
    "ModelEntry": "models",
    "Name": "refs",
    "ObjectBytes": "artifacts",
    "OfferedKey": "exchange",
    "Pinned": "refs",
    "PublicText": "keys",
    "RefEntry": "refs",
    "RefMoved": "refs",
    "Reindexed": "stores",
    "QuotaState": "upkeep",
    "Remaining": "upkeep",
    "RemoteEntry": "exchange",
    "RemoteRefEntry": "exchange",
    "RemoteState": "status",
    "Repaired": "upkeep",
    "Replay": "computed",
    "ReplaySummary": "computed",
    "Stats": "upkeep",
    "Status": "status",
    "Rekeyed": "keys",
    "Revoked": "keys",
    "TextPiece": "computed",
    "Threshold": "keys",
    "Transfer": "exchange",
    "TransferRef": "exchange",
    "TrustEntry": "keys",
    "Usage": "upkeep",
    "UsageSummary": "upkeep",
    "VerifySummary": "findings",
    "TrustSummary": "keys",
    "Version": "program",
}

__all__ = [
    "SCHEMA_VERSION",
    "Record",
    "AnswerFound",
    "Artifact",
    "Attestation",
    "Audit",
    "AuditedArtifact",
    "BenchSetup",
    "BundleEntry",
    "BundleSummary",
    "CheckedReceipt",
    "Cosignature",
    "Collected",
    "ConfigEntry",
    "DepositPlan",
    "Deposited",
    "DiffSummary",
    "Difference",
    "DoctorCheck",
    "DoctorSummary",
    "ExactnessRow",
    "ExactnessRun",
    "ExactnessSummary",
    "FamilyEntry",
    "Finding",
    "GateKind",
    "GateResult",
    "Forgotten",
    "FsckSummary",
    "Graft",
    "HelpText",
    "Initialised",
    "KeyEntry",
    "KeysMoved",
    "LogCheckpoint",
    "LockEntry",
    "LogEntry",
    "Logits",
    "LogitsMoved",
    "MethodEntry",
    "ModelEntry",
    "Name",
    "ObjectBytes",
    "OwnPositionSummary",
    "OfferedKey",
    "Pinned",
    "Prereg",
    "PreregSample",
    "PreregSummary",
    "PublicText",
    "RefEntry",
    "RefMoved",
    "RemoteEntry",
    "RemoteRefEntry",
    "RemoteState",
    "Reindexed",
    "QuotaState",
    "Remaining",
    "Repaired",
    "Replay",
    "ReplaySummary",
    "Stats",
    "Status",
    "Rekeyed",
    "Revoked",
    "Saying",
    "TextPiece",
    "Threshold",
    "Transfer",
    "TransferRef",
    "TrustEntry",
    "Usage",
    "UsageSummary",
    "VerifySummary",
    "TrustSummary",
    "Version",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(name)
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
