"""Records of models and of the machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from kvg.digest import Digest
from kvg.flow.records.record import Record
from kvg.frozen import frozen


@frozen
class ModelEntry(Record):
    """A registered model; ``parameters`` counts weights, None where not known."""

    type: ClassVar[str] = "model"
    name: str
    path: str
    architecture: str
    parameters: int | None
    dtype: str
    fingerprint: Digest
    default: bool
    device: str | None = None
    adapter: str | None = None


@frozen
class DoctorCheck(Record):
    """One look at the machine; ``failed`` decides the exit code by ``code``, else 0."""

    type: ClassVar[str] = "check"
    name: str
    status: Literal["ok", "warning", "failed", "skipped"]
    detail: str
    hint: str | None = None
    code: int = 0

    @property
    def exit_code(self) -> int:
        return self.code if self.status == "failed" else 0


@frozen
class DoctorSummary(Record):
    """What the machine can do; ``exact`` is None where no model was there to prove it."""

    type: ClassVar[str] = "doctor-summary"
    exact: bool | None
    device: str
    versions: Mapping[str, str]
