"""Records of a verification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kvg.flow.records.record import Record


@dataclass(frozen=True, slots=True)
class Finding(Record):
    """One problem; ``code`` and ``kind`` are those of the error taxonomy."""

    type: ClassVar[str] = "finding"
    code: int
    kind: str
    object: str
    message: str
    hint: str | None = None

    @property
    def exit_code(self) -> int:
        return self.code


@dataclass(frozen=True, slots=True)
class VerifySummary(Record):
    """What was checked. ``recomputed`` counts pages whose truth was checked by computing them."""

    type: ClassVar[str] = "verify-summary"
    artifacts: int
    objects: int
    bytes: int
    bytes_ok: bool
    signatures_ok: bool
    policy_ok: bool
    recomputed: int
