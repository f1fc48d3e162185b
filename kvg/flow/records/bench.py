"""Records of what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from kvg.digest import Digest
from kvg.errors import Inexact
from kvg.flow.records.record import Record
from kvg.frozen import frozen


@frozen
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


@frozen
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


@frozen
class ExactnessRow(Record):
    """All runs of one length and one split."""

    type: ClassVar[str] = "exactness-row"
    length: int
    split: str
    runs: int
    equal: int


@frozen
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


@frozen
class SpeedRow(Record):
    """The same work by stock attention and by the invariant reference, in turns.

    ``work``: a prefill of ``tokens``, or one decode step after them. Times are medians in
    milliseconds by the clock. ``ratio`` is the median of the pairs' own ratios, invariant over
    stock, ``ratio_low`` and ``ratio_high`` their quartiles, ``ratio_cpu`` that of processor time.
    ``pairs_ms`` are all pairs (stock, invariant), ``pairs_cpu_ms`` their processor time.
    """

    type: ClassVar[str] = "speed-row"
    work: str
    tokens: int
    input: Digest
    repeats: int
    stock_ms: float
    invariant_ms: float
    ratio: float
    ratio_low: float
    ratio_high: float
    ratio_cpu: float
    pairs_ms: tuple[tuple[float, float], ...]
    pairs_cpu_ms: tuple[tuple[float, float], ...]


@frozen
class LogitsMoved(Record):
    """The logits after a graft moved by ``offset``, against a fresh computation at that offset.

    ``arithmetic`` is the number format the keys were turned in; ``none`` with offset 0 is the graft
    at its own position, as it was stored. ``max_ulp`` counts units in the last place.
    """

    type: ClassVar[str] = "logits-moved"
    offset: int
    arithmetic: str
    input: Digest
    fresh: Digest
    grafted: Digest
    equal: bool
    kl: float
    argmax_equal: bool
    max_abs_diff: float
    max_ulp: int


@frozen
class KeysMoved(Record):
    """The keys of all layers moved by ``offset``, against fresh ones; digests are of raw bytes.

    In the first layer the hidden states are the same at every offset: what differs there is the
    rounding of the turn alone.
    """

    type: ClassVar[str] = "keys-moved"
    offset: int
    arithmetic: str
    input: Digest
    fresh: Digest
    moved: Digest
    equal: bool
    first_layer_equal: bool
    elements: int
    elements_equal: int
    max_ulp: int


@frozen
class OwnPositionSummary(Record):
    """All offsets of one arithmetic. ``keys_equal``, ``first_layer_equal`` and ``logits_equal``
    list the offsets at which every byte is the same: none is expected.

    ``elements_equal`` is the share of key elements. Exit code 11 unless the graft is exact at its
    own position.
    """

    type: ClassVar[str] = "own-position-summary"
    arithmetic: str
    own_exact: bool
    key_offsets: int
    keys_equal: tuple[int, ...]
    first_layer_equal: tuple[int, ...]
    elements_equal: float
    keys_max_ulp: int
    logits_offsets: int
    logits_equal: tuple[int, ...]
    kl_max: float
    logits_max_ulp: int

    @property
    def exit_code(self) -> int:
        return 0 if self.own_exact else Inexact.code


@frozen
class BenchMachine(Record):
    """What a measurement without a model was made on, in general words."""

    type: ClassVar[str] = "bench-machine"
    bench: str
    cpu: str
    cores: int
    versions: Mapping[str, str]


@frozen
class SelectBatch(Record):
    """Look-ups from number ``first`` on. ``input`` is the digest of the problems, a line each;
    ``output`` of what was found: a line of the family's digest and the method's each."""

    type: ClassVar[str] = "select-batch"
    first: int
    count: int
    present: int
    wrong: int
    input: Digest
    output: Digest


@frozen
class SelectTime(Record):
    """How long something took, of ``size`` families; ``share`` is that of the whole solve.

    ``times_ns`` are all runs: (nanoseconds, how many), ascending. The other figures follow.
    """

    type: ClassVar[str] = "select-time"
    size: int
    what: str
    runs: int
    median_us: float
    p99_us: float
    share: float | None
    times_ns: tuple[tuple[int, int], ...]


@frozen
class SelectSummary(Record):
    """All look-ups; exit code 11 unless every one was right."""

    type: ClassVar[str] = "select-summary"
    families: int
    lookups: int
    present: int
    absent: int
    wrong: int
    seconds: float

    @property
    def exit_code(self) -> int:
        return 0 if self.wrong == 0 else Inexact.code


@frozen
class CapabilityRun(Record):
    """One task answered one way: ``alone``, or ``grafted`` after ``block`` (None: none routed)."""

    type: ClassVar[str] = "capability-run"
    task: int
    way: str
    block: Digest | None
    input: Digest
    output: Digest
    said: str
    tokens: int
    right: bool


@frozen
class CapabilitySummary(Record):
    """All tasks; ``weights_…`` are digests over every weight in memory. Code 11 if they differ."""

    type: ClassVar[str] = "capability-summary"
    tasks: int
    routed: int
    right_alone: int
    right_grafted: int
    tokens_alone: int
    tokens_grafted: int
    weights_before: Digest
    weights_after: Digest

    @property
    def exit_code(self) -> int:
        return 0 if self.weights_before == self.weights_after else Inexact.code


@frozen
class AcceptanceRun(Record):
    """One task: whether all seeds agreed, and then whether what was deposited is the key."""

    type: ClassVar[str] = "acceptance-run"
    task: int
    input: Digest
    accepted: bool
    artifact: Digest | None
    said: str | None
    matches: bool | None
    reason: str | None


@frozen
class AcceptanceSummary(Record):
    """All tasks that were asked."""

    type: ClassVar[str] = "acceptance-summary"
    asked: int
    accepted: int
    matching: int
    seeds: int
    temperature: str
    seconds: float


@frozen
class RecurringRun(Record):
    """One problem: what the model spent alone, and what it decoded from its deposited solution."""

    type: ClassVar[str] = "recurring-run"
    problem: int
    input: Digest
    solved_alone: bool
    tokens_alone: int
    artifact: str
    said: str
    output: Digest
    tokens_grafted: int
    right_grafted: bool
    cpu_s_alone: float
    cpu_s_deposit: float
    cpu_s_grafted: float


@frozen
class RecurringSummary(Record):
    """All problems. ``budget`` is what the model had for each alone."""

    type: ClassVar[str] = "recurring-summary"
    problems: int
    budget: int
    solved_alone: int
    right_grafted: int
    tokens_alone: int
    tokens_grafted: int
    factor: float
    cpu_s_alone: float
    cpu_s_deposit: float
    cpu_s_grafted: float


@frozen
class RestoreRow(Record):
    """Graft and first token of one text, against a cold prefill of it to its first token.

    ``form`` is how pages are stored: ``raw`` or ``planes``. ``cache``: ``warm``, pages' files in
    the system's cache and a new slot; ``kept``, the same and a slot that held another text, as the
    window of a context does; ``cold``, the files dropped from the cache before each run and a new
    slot. Times are milliseconds of the run in
    the middle: ``verify_ms`` (log, signatures, manifest), ``restore_ms`` (the pages) and
    ``token_ms`` (one forward pass, the witness) are together ``first_token_ms``. ``prefill_ms`` is
    of one run, ``factor`` how many times as long. Every page was verified in every run; ``exact``
    says that every run met its witness and gave the prefill's first token. ``runs_ms`` are all
    runs (verify, restore, first token).
    """

    type: ClassVar[str] = "restore-row"
    tokens: int
    form: str
    cache: str
    repeats: int
    bytes_raw: int
    bytes_stored: int
    prefill_ms: float
    verify_ms: float
    restore_ms: float
    token_ms: float
    first_token_ms: float
    factor: float
    exact: bool
    runs_ms: tuple[tuple[float, float, float], ...]


@frozen
class RestoreStage(Record):
    """One stage of a restore alone, over all pages of one text, with ``threads`` threads.

    ``read`` from the system's cache into memory that is there, ``hash`` BLAKE3, ``decode`` from
    byte planes, ``copy`` from memory to the slot: what none can do without. ``restore`` is all of
    it, ``unverified`` the same without the hash. ``ms`` is the quickest of ``repeats``, ``cpu_ms``
    the least processor time. ``share``: of the slowest stage in the restore, at as many threads.
    ``runs_ms`` are all runs (by the clock, of processor time).
    """

    type: ClassVar[str] = "restore-stage"
    tokens: int
    form: str
    stage: str
    threads: int
    repeats: int
    bytes: int
    ms: float
    cpu_ms: float
    share: float | None
    runs_ms: tuple[tuple[float, float], ...]


@frozen
class RestoreVerified(Record):
    """The same restore with every page verified and without, in turns; ``cost`` is the share of
    the unverified time that verifying takes on top."""

    type: ClassVar[str] = "restore-verified"
    tokens: int
    form: str
    threads: int
    verified_ms: float
    unverified_ms: float
    cost: float


@frozen
class RestorePart(Record):
    """One part of a restore by one thread, taken apart as it runs: the parts, ``rest`` among them,
    add up to ``total``. ``share`` is of that."""

    type: ClassVar[str] = "restore-part"
    tokens: int
    form: str
    part: str
    ms: float
    share: float


@frozen
class RestoreSkipped(Record):
    """A way that could not be measured here, and why."""

    type: ClassVar[str] = "restore-skipped"
    way: str
    reason: str


@frozen
class RestoreOther(Record):
    """The same text's state kept another way, beside kvg's own rows.

    ``first_token_ms`` is the median of reading it and of one token after it, with a warm cache.
    ``notices_damage``: whether reading failed once one bit of the file had been flipped.
    ``exact``: whether the logits are those of that library's own pass over the whole text.
    ``runs_ms`` are all runs.
    """

    type: ClassVar[str] = "restore-other"
    tokens: int
    way: str
    repeats: int
    bytes_stored: int
    load_ms: float
    first_token_ms: float
    notices_damage: bool
    exact: bool
    runs_ms: tuple[tuple[float, float], ...]


@frozen
class StoreDeposit(Record):
    """What a deposit of ``tokens`` took beyond its prefill: pages put, proved and signed, the log.

    Of the deposit in the middle by ``overhead``, which is ``store_ms`` over ``prefill_ms``;
    ``runs_ms`` are all (prefill, store).
    """

    type: ClassVar[str] = "store-deposit"
    tokens: int
    repeats: int
    prefill_ms: float
    store_ms: float
    overhead: float
    runs_ms: tuple[tuple[float, float], ...]


@frozen
class StoreRow(Record):
    """An artifact in one stored form: its size, and the time to verify every byte of it.

    ``sha256_ms`` is that of SHA-256 alone over the raw pages in memory, by as many threads;
    ``share`` is that over ``verify_ms``. Both are the least of ``runs_ms`` (verify, SHA-256).
    """

    type: ClassVar[str] = "store-row"
    tokens: int
    form: str
    repeats: int
    bytes_raw: int
    bytes_stored: int
    verify_ms: float
    sha256_ms: float
    share: float
    runs_ms: tuple[tuple[float, float], ...]


@frozen
class EnergyRow(Record):
    """What one way to the first token of a text cost. ``tokens_computed`` went through the model.

    ``joules`` is None where the machine has no counter: it is never reckoned from assumed watts.
    ``counter`` names what was read: ``rapl``, ``nvml`` or both. ``runs_ms`` has the clock's and the
    processor's milliseconds of every run; ``seconds`` and ``cpu_seconds`` are their means.
    """

    type: ClassVar[str] = "energy-row"
    way: str
    tokens: int
    tokens_computed: int
    runs: int
    seconds: float
    cpu_seconds: float
    joules: float | None
    counter: str | None
    runs_ms: tuple[tuple[float, float], ...]


@frozen
class RestoreSummary(Record):
    """All rows: the factors at the longest text, warm, to a new slot and to one that was kept.

    Exit code 11 unless every run was exact.
    """

    type: ClassVar[str] = "restore-summary"
    tokens: int
    factor_raw: float
    factor_planes: float
    factor_raw_kept: float
    factor_planes_kept: float
    exact: bool

    @property
    def exit_code(self) -> int:
        return 0 if self.exact else Inexact.code


@frozen
class ContextAccess(Record):
    """The window moved to a token drawn by chance: block found, verified, restored, proved by its
    witness, first token chosen. ``memory_bytes`` is what the process holds after it."""

    type: ClassVar[str] = "context-access"
    number: int
    offset: int
    block: int
    first_token_ms: float
    restored_bytes: int
    memory_bytes: int
    logits: Digest
    replayed: Digest | None


@frozen
class ContextBenchSummary(Record):
    """All accesses. ``slope_ms`` is of time over depth, for a million tokens, with its 95 %
    confidence interval. ``growth_bytes``: the most that memory grew by after the first access.
    Every tenth access was computed afresh; exit code 11 unless all of those are equal."""

    type: ClassVar[str] = "context-bench-summary"
    context: str
    blocks: int
    tokens: int
    windows: float
    accesses: int
    median_ms: float
    p99_ms: float
    slope_ms: float
    slope_low: float
    slope_high: float
    growth_bytes: int
    replayed: int
    equal: int

    @property
    def exit_code(self) -> int:
        return 0 if self.equal == self.replayed else Inexact.code
