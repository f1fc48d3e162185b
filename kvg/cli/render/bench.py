"""Renderers of measurements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from kvg.cli.render import Renderer, View
from kvg.cli.render.words import brief, count, seconds, size
from kvg.flow.records.bench import (
    AcceptanceRun,
    AcceptanceSummary,
    BenchMachine,
    BenchSetup,
    CapabilityRun,
    CapabilitySummary,
    ContextAccess,
    ContextBenchSummary,
    EnergyRow,
    ExactnessRow,
    ExactnessRun,
    ExactnessSummary,
    KeysMoved,
    LogitsMoved,
    OwnPositionSummary,
    RecurringRun,
    RecurringSummary,
    RestoreOther,
    RestorePart,
    RestoreRow,
    RestoreSkipped,
    RestoreStage,
    RestoreSummary,
    RestoreVerified,
    SelectBatch,
    SelectSummary,
    SelectTime,
    SpeedRow,
    StoreDeposit,
    StoreRow,
)


def setup(record: BenchSetup, view: View) -> Iterator[str]:
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    yield (
        f"{record.bench}: {record.model} {record.architecture} {record.dtype}, engine "
        f"{brief(record.engine)}\n{record.cpu}, {count(record.cores, 'core')}, "
        f"{count(record.threads, 'thread')}, {record.device}; {versions}\n"
    )


def machine(record: BenchMachine, view: View) -> Iterator[str]:
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    yield f"{record.bench}\n{record.cpu}, {count(record.cores, 'core')}; {versions}\n"


def select_batch(record: SelectBatch, view: View) -> Iterator[str]:
    if record.wrong or view.verbose:
        yield (
            f"look-ups {record.first:,} to {record.first + record.count:,}  "
            f"{record.wrong} wrong  {brief(record.output)}\n"
        )


def select_time(record: SelectTime, view: View) -> Iterator[str]:
    share = "" if record.share is None else f"  {100 * record.share:5.1f} %"
    yield (
        f"{record.what:<26} {record.size:>9,} families  median {_micro(record.median_us):>10}  "
        f"p99 {_micro(record.p99_us):>10}  {record.runs:,} runs{share}\n"
    )


def _micro(value: float) -> str:
    return f"{value / 1e3:,.1f} ms" if value >= 1e3 else f"{value:.2f} µs"


def select_summary(record: SelectSummary, view: View) -> Iterator[str]:
    line = (
        f"{record.wrong} wrong in {record.lookups:,} look-ups over {record.families:,} families: "
        f"{record.present:,} present, {record.absent:,} absent"
    )
    yield view.terminal.out(line, "red" if record.wrong else "green") + "\n"


def capability_run(record: CapabilityRun, view: View) -> Iterator[str]:
    if view.verbose:
        mark = "right" if record.right else "wrong"
        yield f"task {record.task}  {record.way}  {mark}  {count(record.tokens, 'token')}  "
        yield f"{record.said[:80]!r}\n"


def capability_summary(record: CapabilitySummary, view: View) -> Iterator[str]:
    for way, right, tokens in (
        ("alone", record.right_alone, record.tokens_alone),
        ("one block grafted", record.right_grafted, record.tokens_grafted),
    ):
        yield f"{way:<18} {right} of {record.tasks} right  {count(tokens, 'token')} generated\n"
    same = "the same" if record.weights_before == record.weights_after else "CHANGED"
    yield (
        f"{record.routed} of {record.tasks} routed by exact structure; weights "
        f"{brief(record.weights_before)} before, {same} after\n"
    )


def acceptance_run(record: AcceptanceRun, view: View) -> Iterator[str]:
    if view.verbose:
        state = "accepted" if record.accepted else "rejected"
        yield f"task {record.task}  {state}  {record.said or record.reason or ''}\n"


def acceptance_summary(record: AcceptanceSummary, view: View) -> Iterator[str]:
    yield (
        f"{record.accepted} of {record.asked} accepted by {record.seeds} of {record.seeds} seeds "
        f"at temperature {record.temperature}; {record.matching} of {record.accepted} accepted "
        f"match the hidden key  {seconds(1e3 * record.seconds)}\n"
    )


def recurring_run(record: RecurringRun, view: View) -> Iterator[str]:
    alone = "solved" if record.solved_alone else "not solved"
    grafted = "right" if record.right_grafted else "wrong"
    yield (
        f"problem {record.problem}  alone: {alone} in {count(record.tokens_alone, 'token')}, "
        f"{record.cpu_s_alone:.1f} CPU s  grafted: {grafted} in "
        f"{count(record.tokens_grafted, 'token')}, {record.cpu_s_grafted:.2f} CPU s  "
        f"{record.said[:40]!r}\n"
    )


def recurring_summary(record: RecurringSummary, view: View) -> Iterator[str]:
    yield (
        f"alone, {record.budget:,} tokens each: {record.solved_alone} of {record.problems} solved, "
        f"{count(record.tokens_alone, 'token')}, {record.cpu_s_alone:.1f} CPU s\n"
        f"grafted: {record.right_grafted} of {record.problems} right, "
        f"{count(record.tokens_grafted, 'token')}, {record.cpu_s_grafted:.1f} CPU s "
        f"(deposits {record.cpu_s_deposit:.1f})\nfactor {record.factor:,.0f}\n"
    )


def exactness_run(record: ExactnessRun, view: View) -> Iterator[str]:
    if record.equal and not view.verbose:
        return
    mark = "equal" if record.equal else view.terminal.out("differs", "red")
    yield (
        f"sample {record.sample}  {count(record.length, 'token')}  {record.split}  "
        f"{count(record.threads, 'thread')}  batch of {record.batch}  {mark}  "
        f"logits {brief(record.logits)} of {brief(record.expected_logits)}  "
        f"state {brief(record.state)} of {brief(record.expected_state)}\n"
    )


def exactness_row(record: ExactnessRow, view: View) -> Iterator[str]:
    line = f"{record.length:>7,} tokens  {record.split:<9} {record.equal} of {record.runs} equal"
    yield (line if record.equal == record.runs else view.terminal.out(line, "red")) + "\n"


def exactness_summary(record: ExactnessSummary, view: View) -> Iterator[str]:
    line = (
        f"{record.equal} of {record.runs} equal  {count(record.runs - record.equal, 'mismatch')}"
        f"  {seconds(1e3 * record.seconds)}"
    ).replace("mismatchs", "mismatches")
    yield view.terminal.out(line, "red" if record.exit_code else "green") + "\n"


def logits_moved(record: LogitsMoved, view: View) -> Iterator[str]:
    how = "own position, as stored" if record.offset == 0 else f"turned in {record.arithmetic}"
    mark = "equal" if record.equal else "differs"
    argmax = "same" if record.argmax_equal else "other"
    yield (
        f"logits  offset {record.offset:>7,}  {how}  {mark}  KL {record.kl:.3g}  argmax {argmax}  "
        f"{count(record.max_ulp, 'ULP')}\n"
    )


def keys_moved(record: KeysMoved, view: View) -> Iterator[str]:
    if not (record.equal or view.verbose):
        return
    mark = "equal" if record.equal else "differs"
    share = 100 * record.elements_equal / record.elements
    yield (
        f"keys    offset {record.offset:>7,}  turned in {record.arithmetic}  {mark}  "
        f"{share:.1f} % of elements equal  {count(record.max_ulp, 'ULP')}\n"
    )


def own_position_summary(record: OwnPositionSummary, view: View) -> Iterator[str]:
    own = "exact" if record.own_exact else view.terminal.out("NOT exact", "red")
    yield (
        f"turned in {record.arithmetic}: own position {own}; elsewhere "
        f"{len(record.keys_equal)} of {record.key_offsets:,} offsets with equal keys, "
        f"{len(record.first_layer_equal)} in the first layer alone, "
        f"{len(record.logits_equal)} of {record.logits_offsets} with equal logits; "
        f"largest KL {record.kl_max:.3g}\n"
    )
    for name, offsets in (("keys", record.keys_equal), ("logits", record.logits_equal)):
        if offsets:
            yield f"exceptions, {name}: {', '.join(f'{n:,}' for n in offsets)}\n"


def speed_row(record: SpeedRow, view: View) -> Iterator[str]:
    times = f"stock {record.stock_ms:>9,.1f} ms  invariant {record.invariant_ms:>9,.1f} ms"
    yield (
        f"{record.work:<7} {record.tokens:>7,} tokens  {times}  ratio {record.ratio:.2f} "
        f"({record.ratio_low:.2f} to {record.ratio_high:.2f}), of processor time "
        f"{record.ratio_cpu:.2f}\n"
    )


def restore_row(record: RestoreRow, view: View) -> Iterator[str]:
    mark = "exact" if record.exact else view.terminal.out("NOT exact", "red")
    yield (
        f"{record.tokens:>7,} tokens  {record.form:<6} {record.cache}  "
        f"prefill {seconds(record.prefill_ms):>7}  graft and first token "
        f"{record.first_token_ms:8.1f} ms (verify {record.verify_ms:.1f}, restore "
        f"{record.restore_ms:.1f}, token {record.token_ms:.1f})  "
        f"{record.factor:6.1f} times  {mark}\n"
    )


def restore_stage(record: RestoreStage, view: View) -> Iterator[str]:
    share = "" if record.share is None else f"  slowest stage / restore {record.share:.2f}"
    speed = record.bytes / record.ms / 1e6
    yield (
        f"{record.tokens:>7,} tokens  {record.form:<6} {record.stage:<10} "
        f"{count(record.threads, 'thread'):<9}  {record.ms:8.1f} ms  {record.cpu_ms:8.1f} ms of "
        f"processor  {speed:5.2f} GB/s{share}\n"
    )


def restore_other(record: RestoreOther, view: View) -> Iterator[str]:
    damage = "a flipped bit is noticed" if record.notices_damage else "a flipped bit goes unnoticed"
    yield (
        f"{record.tokens:>7,} tokens  {record.way:<26} first token "
        f"{record.first_token_ms:8.1f} ms (load {record.load_ms:.1f})  "
        f"{size(record.bytes_stored)}  {damage}  {'exact' if record.exact else 'not exact'}\n"
    )


def restore_verified(record: RestoreVerified, view: View) -> Iterator[str]:
    yield (
        f"{record.tokens:>7,} tokens  {record.form:<6} {count(record.threads, 'thread'):<9}  "
        f"verified {record.verified_ms:.1f} ms, unverified {record.unverified_ms:.1f} ms: "
        f"{record.cost:+.0%}\n"
    )


def restore_part(record: RestorePart, view: View) -> Iterator[str]:
    yield (
        f"{record.tokens:>7,} tokens  {record.form:<6} {record.part:<11} {record.ms:8.1f} ms  "
        f"{record.share:5.1%} of one thread's restore\n"
    )


def restore_skipped(record: RestoreSkipped, view: View) -> Iterator[str]:
    yield f"{record.way}: not measured: {record.reason}\n"


def store_deposit(record: StoreDeposit, view: View) -> Iterator[str]:
    yield (
        f"{record.tokens:,} tokens deposited: prefill {seconds(record.prefill_ms)}, stored in "
        f"{record.store_ms:.1f} ms more: {record.overhead:.1%}\n"
    )


def store_row(record: StoreRow, view: View) -> Iterator[str]:
    yield (
        f"{record.tokens:,} tokens  {record.form:<6} {size(record.bytes_stored)} of "
        f"{size(record.bytes_raw)} ({record.bytes_stored / record.bytes_raw:.0%})  verify "
        f"{record.verify_ms:.1f} ms, {record.bytes_raw / record.verify_ms / 1e6:.2f} GB/s; "
        f"SHA-256 alone / verify {record.share:.2f}\n"
    )


def energy_row(record: EnergyRow, view: View) -> Iterator[str]:
    joules = "no counter" if record.joules is None else f"{record.joules:.2f} J ({record.counter})"
    yield (
        f"{record.way:<8} {record.tokens:,} tokens, {record.tokens_computed:,} computed  "
        f"{record.seconds:.3f} s  {record.cpu_seconds:.3f} CPU s  {joules}\n"
    )


def restore_summary(record: RestoreSummary, view: View) -> Iterator[str]:
    line = (
        f"{record.tokens:,} tokens, warm: {record.factor_raw:.1f} times from raw pages to a new "
        f"slot, {record.factor_raw_kept:.1f} to one that was kept; {record.factor_planes:.1f} and "
        f"{record.factor_planes_kept:.1f} from compressed ones; every page verified"
    )
    yield view.terminal.out(line, "red" if record.exit_code else "green") + "\n"


def context_access(record: ContextAccess, view: View) -> Iterator[str]:
    is_wrong = record.replayed is not None and record.replayed != record.logits
    if view.verbose or is_wrong:
        mark = "  DIFFERS from a fresh computation" if is_wrong else ""
        yield (
            f"access {record.number}  token {record.offset:,}  block {record.block}  "
            f"{record.first_token_ms:.1f} ms{mark}\n"
        )


def context_bench_summary(record: ContextBenchSummary, view: View) -> Iterator[str]:
    yield (
        f"{count(record.blocks, 'block')}, {record.tokens:,} tokens, {record.windows:.1f} windows; "
        f"{record.accesses} accesses: median {record.median_ms:.1f} ms, "
        f"p99 {record.p99_ms:.1f} ms; "
        f"slope {record.slope_ms:.2f} ms for a million tokens "
        f"[{record.slope_low:.2f}, {record.slope_high:.2f}]; "
        f"memory grew by {record.growth_bytes / 2**20:.1f} MiB\n"
    )
    line = f"{record.equal} of {record.replayed} accesses computed afresh are equal"
    yield view.terminal.out(line, "red" if record.exit_code else "green") + "\n"


RENDERERS = cast(
    "dict[str, Renderer]",
    {
        "acceptance-run": acceptance_run,
        "acceptance-summary": acceptance_summary,
        "capability-run": capability_run,
        "capability-summary": capability_summary,
        "recurring-run": recurring_run,
        "recurring-summary": recurring_summary,
        "bench-machine": machine,
        "energy-row": energy_row,
        "store-deposit": store_deposit,
        "store-row": store_row,
        "restore-other": restore_other,
        "restore-part": restore_part,
        "restore-row": restore_row,
        "restore-skipped": restore_skipped,
        "restore-verified": restore_verified,
        "restore-stage": restore_stage,
        "restore-summary": restore_summary,
        "context-access": context_access,
        "context-bench-summary": context_bench_summary,
        "select-batch": select_batch,
        "select-summary": select_summary,
        "select-time": select_time,
        "bench-setup": setup,
        "exactness-run": exactness_run,
        "exactness-row": exactness_row,
        "exactness-summary": exactness_summary,
        "logits-moved": logits_moved,
        "keys-moved": keys_moved,
        "own-position-summary": own_position_summary,
        "speed-row": speed_row,
    },
)
