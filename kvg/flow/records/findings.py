"""Records of a verification."""

from __future__ import annotations

from typing import ClassVar

from kvg.flow.records.record import Record
from kvg.frozen import frozen


@frozen
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


@frozen
class VerifySummary(Record):
    """What was checked. ``recomputed`` counts pages whose truth was checked by computing them.

    ``differing`` counts those of them that are not what the model computes.
    ``absent`` counts pages that a remote keeps until they are read; nothing was said of them.
    """

    type: ClassVar[str] = "verify-summary"
    artifacts: int
    objects: int
    bytes: int
    bytes_ok: bool
    signatures_ok: bool
    policy_ok: bool
    recomputed: int
    differing: int = 0
    absent: int = 0
    methods: int = 0
