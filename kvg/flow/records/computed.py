"""Records of what a model computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from kvg.flow.records.record import Record
from kvg.frozen import frozen

if TYPE_CHECKING:
    from kvg.digest import Digest


@frozen
class Deposited(Record):
    """One deposit. ``tokens_computed`` is 0 for one that was there; ``gates`` those that passed,
    ``unenclosed`` those of them that ran without a sandbox."""

    type: ClassVar[str] = "deposited"
    ref: str
    digest: Digest
    unchanged: bool
    tokens: int
    tokens_computed: int
    pages: int
    new_objects: int
    bytes_raw: int
    bytes_stored: int
    prefill_ms: float
    store_ms: float
    gates: tuple[str, ...]
    attestation: Digest | None
    log_index: int | None
    device: str
    dtype: str
    unenclosed: tuple[str, ...] = ()


@frozen
class DepositPlan(Record):
    """What a deposit would do. ``digest`` is None where it takes the computation to know it."""

    type: ClassVar[str] = "deposit-plan"
    ref: str
    digest: Digest | None
    unchanged: bool
    tokens: int
    tokens_computed: int
    pages: int
    bytes_raw: int
    gates: tuple[str, ...]
    device: str
    dtype: str


@frozen
class TextPiece(Record):
    """A piece of generated text, yielded while streaming, before its ``Graft``."""

    type: ClassVar[str] = "text"
    text: str


@frozen
class Graft(Record):
    """One graft and what the model wrote after it. ``text`` is whole, also after streaming.

    ``exact`` is the measured fact that this graft's witness was met. ``logits_digest`` is of the
    logits that the first generated token was chosen from. A miss answered fresh has ``digest``
    None and ``saved_tokens`` 0. ``latency_ms`` is what verifying and restoring took,
    ``first_token_ms`` counts on to the choice of the first token. ``finish`` is ``length`` when the
    text was cut at ``--max-tokens`` or the model's window. ``sampling`` is how tokens were
    chosen: the random stream, its seed, temperature and top-p.
    """

    type: ClassVar[str] = "graft"
    status: Literal["GRAFT_HIT", "CACHE_MISS"]
    ref: str
    digest: Digest | None
    saved_tokens: int
    restored_bytes: int
    latency_ms: float
    verify_ms: float
    restore_ms: float
    first_token_ms: float
    prompt_tokens: int
    new_tokens: int
    text: str
    finish: Literal["stop", "length"]
    exact: bool
    reference: str
    logits_digest: Digest | None
    device: str
    sampling: Mapping[str, object]


@frozen
class Logits(Record):
    """The digest of the raw logits at the last position, and what computing them took.

    ``compute_ms`` counts restoring and forward passes, not loading the model.
    """

    type: ClassVar[str] = "logits"
    digest: Digest
    dtype: str
    shape: tuple[int, ...]
    reference: str
    source: Literal["grafted", "fresh"]
    compute_ms: float


@frozen
class Replay(Record):
    """One prompt, grafted against fresh; ``grafted`` and ``fresh`` are digests of raw logits."""

    type: ClassVar[str] = "replay"
    ref: str
    prompt_digest: Digest
    grafted: Digest
    fresh: Digest
    equal: bool
    kl: float
    argmax_equal: bool
    max_abs_diff: float
    top2_gap: float


@frozen
class ReplaySummary(Record):
    """All prompts of all refs; ``pages`` were recomputed, ``pages_equal`` have the same digest."""

    type: ClassVar[str] = "replay-summary"
    samples: int
    equal: int
    kl_max: float
    argmax_rate: float
    pages: int
    pages_equal: int

    @property
    def exit_code(self) -> int:
        same = self.equal == self.samples and self.pages_equal == self.pages
        return 0 if same else 11
