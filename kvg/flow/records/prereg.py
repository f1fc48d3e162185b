"""Records of preregistrations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kvg.digest import Digest
from kvg.errors import Inexact
from kvg.flow.records.record import Record


@dataclass(frozen=True, slots=True)
class ExpectedArtifact:
    """One artifact of a preregistration: inputs, model, engine, and how much is expected."""

    manifest: Digest
    model: Digest
    architecture: str
    dtype: str
    engine: Digest
    reference: str
    tokens: Digest
    count: int
    pages: tuple[Digest, ...]
    prompts: tuple[Digest, ...]
    logits: tuple[Digest, ...]


@dataclass(frozen=True, slots=True)
class Prereg(Record):
    """A preregistration. ``log_index`` is its place in this store's log, None when it is not there;
    ``time`` (Unix seconds) is the writer's word.
    """

    type: ClassVar[str] = "preregistration"
    digest: Digest
    artifacts: tuple[ExpectedArtifact, ...]
    samples: int
    log_index: int | None
    time: int | None


@dataclass(frozen=True, slots=True)
class PreregSample(Record):
    """One prompt: the digest expected, and what a graft and a fresh computation gave here."""

    type: ClassVar[str] = "prereg-sample"
    manifest: Digest
    prompt_digest: Digest
    expected: Digest
    grafted: Digest
    fresh: Digest
    equal: bool


@dataclass(frozen=True, slots=True)
class PreregSummary(Record):
    """A preregistered run. Exit code 11 unless every digest is the one expected."""

    type: ClassVar[str] = "prereg-summary"
    digest: Digest
    log_index: int | None
    samples: int
    equal: int
    pages: int
    pages_equal: int

    @property
    def exit_code(self) -> int:
        same = self.equal == self.samples and self.pages_equal == self.pages
        return 0 if same else Inexact.code
