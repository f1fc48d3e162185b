"""Records of what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from kvg.digest import Digest
from kvg.errors import Inexact
from kvg.flow.records.record import Record


@dataclass(frozen=True, slots=True)
class BenchSetup(Record):
    """What was measured and on what: the machine in general words, the model, the engine."""

    type: ClassVar[str] = "bench-setup"
    bench: str
    model: str
    architecture: str
    fingerprint: Digest
    dtype: str
    engine: Digest
    cpu: str
    cores: int
    threads: int
    device: str
    versions: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ExactnessRun(Record):
    """One text computed one way. ``expected_…`` are those of one fresh pass over the same ids.

    ``input`` is the digest of the token ids, ``logits`` of the last position's raw logits,
    ``state`` over the digests of all pages.
    """

    type: ClassVar[str] = "exactness-run"
    sample: int
    length: int
    threads: int
    batch: int
    split: str
    input: Digest
    logits: Digest
    state: Digest
    expected_logits: Digest
    expected_state: Digest
    equal: bool


@dataclass(frozen=True, slots=True)
class ExactnessRow(Record):
    """All runs of one length and one split."""

    type: ClassVar[str] = "exactness-row"
    length: int
    split: str
    runs: int
    equal: int


@dataclass(frozen=True, slots=True)
class ExactnessSummary(Record):
    """All runs; exit code 11 unless every one is equal."""

    type: ClassVar[str] = "exactness-summary"
    samples: int
    runs: int
    equal: int
    seconds: float

    @property
    def exit_code(self) -> int:
        return 0 if self.equal == self.runs else Inexact.code
