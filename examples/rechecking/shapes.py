"""Which fields each type of record has, and which of them follow from nothing else in the file."""

from __future__ import annotations

import math
import re

from rechecking.rows import Row, need

DIGEST = re.compile("sha256:[0-9a-f]{64}")
VERSION = "schema_version"

# n: a count; x: a finite number, not negative, f: of any sign; s: text; t: text, or none of it;
# b: true or false; d: a digest; l: a list; o: an object. A ? lets null stand for it.
SETUP = "bench:s model:s architecture:s fingerprint:d dtype:s engine:d cpu:s cores:n threads:n"
SHAPES = {
    "bench-setup": SETUP + " device:s versions:o",
    "bench-machine": "bench:s cpu:s cores:n versions:?o",
    "setup": "cpu:s versions:o threads:n",
    "machine": "cpu:s cores:n python:s system:s",
    "exactness-run": "sample:n length:n threads:n batch:n split:s input:d logits:d state:d "
    "expected_logits:d expected_state:d equal:b",
    "exactness-row": "length:n split:s runs:n equal:n",
    "exactness-summary": "samples:n runs:n equal:n seconds:x",
    "lengths-setup": "window:n stride:n first:n last:n",
    "length": "length:n cut:?n manifest:d exact:b cut_exact:?b replays:n replays_equal:n pages:n "
    "pages_equal:n",
    "lengths-summary": "lengths:n cuts:n wrong:n",
    "logits-moved": "offset:n arithmetic:s input:d fresh:d grafted:d equal:b kl:x argmax_equal:b "
    "max_abs_diff:x max_ulp:n",
    "keys-moved": "offset:n arithmetic:s input:d fresh:d moved:d equal:b first_layer_equal:b "
    "elements:n elements_equal:n max_ulp:n",
    "own-position-summary": "arithmetic:s own_exact:b key_offsets:n keys_equal:l "
    "first_layer_equal:l elements_equal:x keys_max_ulp:n logits_offsets:n logits_equal:l kl_max:x "
    "logits_max_ulp:n",
    "accuracy": "model:s dtype:s execution:s sample:n tokens:n input:d logits:d rms:x largest:x "
    "kl:x argmax_rate:x",
    "accuracy-row": "model:s dtype:s texts:n rms_sdpa:x rms_invariant:x ratio:x ratio_low:x "
    "ratio_high:x",
    "speed-row": "work:s tokens:n input:d repeats:n stock_ms:x invariant_ms:x ratio:x ratio_low:x "
    "ratio_high:x ratio_cpu:?x pairs_ms:l pairs_cpu_ms:?l",
    "prefill-setup": "threads:n versions:o",
    "prefill-sum": "execution:s tokens:n seconds:x",
    "prefill-operator": "execution:s operator:s seconds:x calls:n share:x",
    "prefill-call": "form:s keys:n best_ms:x median_ms:x runs_ms:l",
    "select-batch": "first:n count:n present:n wrong:n input:d output:d",
    "select-time": "size:n what:s runs:n median_us:x p99_us:x share:?x times_ns:l",
    "select-summary": "families:n lookups:n present:n absent:n wrong:n seconds:x",
    "select-row": "selector:s text:s lookups:n wrong:n missed:n wrong_rate:x threshold:?x "
    "output:d outcomes:s",
    "acceptance-run": "task:n input:d accepted:b artifact:?d said:?s matches:?b reason:?s",
    "acceptance-summary": "asked:n accepted:n matching:n seeds:n temperature:s seconds:x",
    "capability-run": "task:n way:s block:?d input:d output:d said:s tokens:n right:b",
    "capability-summary": "tasks:n routed:n right_alone:n right_grafted:n tokens_alone:n "
    "tokens_grafted:n weights_before:d weights_after:d",
    "recurring-run": "problem:n input:d solved_alone:b tokens_alone:n artifact:d said:s output:d "
    "tokens_grafted:n right_grafted:b cpu_s_alone:x cpu_s_deposit:x cpu_s_grafted:x",
    "recurring-summary": "problems:n budget:n solved_alone:n right_grafted:n tokens_alone:n "
    "tokens_grafted:n factor:x cpu_s_alone:x cpu_s_deposit:x cpu_s_grafted:x",
    "families-answer": "name:s number:n text:s family:d method:?d status:s answer:?s oracle:s "
    "right:b tokens_generated:n empty_store:s",
    "families-summary": "instances:n right:n tokens_generated:n hits_of_empty_store:n",
    "class": "class:s environment:o capability:s tokens:n manifest:d prereg:o",
    "prereg-sample": "class:s manifest:d prompt_digest:d expected:d grafted:d fresh:d equal:b",
    "prereg-summary": "class:s digest:d log_index:n samples:n equal:n pages:n pages_equal:n",
    "own": "class:s exit:n",
    "foreign": "class:s prereg_of:s exit:n",
    "fuzz": "decoder:s seed:n executions:n accepted:n failures:n seconds:x grown_kb:n",
    "fuzz-guided": "decoder:s way:s executions:n accepted:n failures:n edges:n inputs:n lines:n "
    "seconds:x grown_kb:n",
    "fuzz-corpus": "decoder:s files:n bytes:n lines:n lines_good:n edits:n lines_edits:n",
    "stress": "writers:n readers:n collectors:n seconds:x deposited:n named:n unnamed:n "
    "gone_before_named:n verified:n gone_meanwhile:n sweeps:n removed:n lost:n wrong:n",
    "crash": "verb:s steps:n states:n points:n kinds:o",
    "power-loss": "verb:s states:n tried:n",
    "crash-summary": "form:s verbs:n points:n kinds:o power_verbs:n power_states:n power_tried:n "
    "seconds:x",
    "verify": "bytes:n seconds:x cpu_seconds:x memory_mb:x gb_per_s:x sha256_all_cores_gb_per_s:x "
    "ratio:x start_seconds:x start_runs:l ratio_without_start:x runs:l sha256_runs_gb_per_s:l",
    "growth": "command:s artifacts:n objects:n seconds:x cpu_seconds:x memory_mb:x",
    "restore-row": "tokens:n form:s cache:s repeats:n bytes_raw:n bytes_stored:n prefill_ms:x "
    "verify_ms:x restore_ms:x token_ms:x first_token_ms:x factor:x exact:b runs_ms:l",
    "restore-stage": "tokens:n form:s stage:s threads:n repeats:n bytes:n ms:x cpu_ms:x share:?x "
    "runs_ms:l",
    "restore-other": "tokens:n way:s repeats:n bytes_stored:n load_ms:x first_token_ms:x "
    "notices_damage:b exact:b runs_ms:l",
    "restore-verified": "tokens:n form:s threads:n verified_ms:x unverified_ms:x cost:f",
    "restore-part": "tokens:n form:s part:s ms:f share:f",
    "restore-skipped": "way:s reason:s",
    "restore-summary": "tokens:n factor_raw:x factor_planes:x factor_raw_kept:x "
    "factor_planes_kept:x exact:b",
    "store-deposit": "tokens:n repeats:n prefill_ms:x store_ms:x overhead:x runs_ms:l",
    "store-row": "tokens:n form:s repeats:n bytes_raw:n bytes_stored:n verify_ms:x sha256_ms:x "
    "share:x runs_ms:l",
    "choosing-row": "task:s way:s questions:n right:n rights:l prepare_s:x answers_s:x answer_s:x "
    "tokens:l",
    "asking-row": "number:n question:s place:s ref:s rank:?n found:b citations:l cited:b said:t "
    "right:b said_alone:t right_alone:b equal:b seconds:x",
    "asking-summary": "questions:n context_tokens:n context_blocks:n block_tokens:n blocks:n "
    "found:n cited:n right:n right_alone:n equal:n",
    "session-start": "runs:n tokens:n typer_ms:o graft_ms:o first_token_ms:o ratio:o load:x "
    "typer_runs_ms:l graft_runs_ms:l first_token_runs_ms:l",
    "session-deposit": "tokens:n repeats:n prefill_ms:x deposit_ms:x overhead:f overhead_cpu:f "
    "runs_ms:l",
    "context-abreast": "blocks:n tokens:n rounds:n jobs:n alone_s:l abreast_s:l alone_cpu_s:l "
    "abreast_cpu_s:l ratio:x ratio_cpu:x load:x",
    "energy-row": "way:s tokens:n tokens_computed:n runs:n seconds:x cpu_seconds:x joules:?x "
    "counter:?s runs_ms:l",
    "context-made": "context:s blocks:n tokens:n files:n computed:n kept:n removed:n "
    "tokens_computed:n bytes_raw:n bytes_stored:n seconds:x",
    "context-access": "number:n offset:n block:n first_token_ms:x restored_bytes:n memory_bytes:n "
    "logits:d replayed:?d",
    "context-bench-summary": "context:s blocks:n tokens:n windows:x accesses:n median_ms:x "
    "p99_ms:x slope_ms:f slope_low:f slope_high:f growth_bytes:n replayed:n equal:n",
}

RAW = {
    "bench-setup": "cores threads",
    "bench-machine": "cores",
    "setup": "threads",
    "machine": "cores",
    "exactness-summary": "seconds",
    "length": "manifest",
    "logits-moved": "kl argmax_equal max_abs_diff max_ulp",
    "keys-moved": "first_layer_equal max_ulp",
    "accuracy": "largest kl",
    "speed-row": "tokens pairs_ms pairs_cpu_ms",
    "prefill-setup": "threads",
    "prefill-sum": "tokens seconds",
    "prefill-operator": "seconds calls",
    "prefill-call": "runs_ms",
    "select-time": "size times_ns",
    "select-summary": "families seconds",
    "select-row": "threshold",
    "acceptance-summary": "seeds seconds",
    "recurring-summary": "budget",
    "class": "prereg.log_index prereg.time",
    "fuzz": "seed executions accepted seconds grown_kb",
    "fuzz-guided": "executions accepted edges inputs lines seconds grown_kb",
    "fuzz-corpus": "files bytes lines lines_good edits lines_edits",
    "stress": "writers readers collectors seconds deposited named unnamed gone_before_named "
    "verified gone_meanwhile sweeps removed",
    "crash": "steps states",
    "crash-summary": "seconds",
    "verify": "bytes runs start_runs sha256_runs_gb_per_s",
    "growth": "artifacts objects seconds cpu_seconds memory_mb",
    "restore-row": "tokens bytes_raw bytes_stored prefill_ms runs_ms",
    "restore-stage": "tokens threads bytes runs_ms",
    "restore-other": "tokens bytes_stored notices_damage exact runs_ms",
    "restore-verified": "tokens threads",
    "restore-part": "tokens ms",
    "store-deposit": "tokens runs_ms",
    "store-row": "tokens bytes_raw bytes_stored runs_ms",
    "choosing-row": "rights prepare_s answers_s tokens",
    "energy-row": "tokens tokens_computed joules runs_ms",
    "asking-row": "rank found cited right right_alone equal seconds",
    "asking-summary": "context_tokens context_blocks block_tokens blocks",
    "session-start": "tokens typer_runs_ms graft_runs_ms first_token_runs_ms load",
    "session-deposit": "tokens runs_ms",
    "context-abreast": "blocks tokens jobs alone_s abreast_s alone_cpu_s abreast_cpu_s load",
    "context-made": "tokens blocks files removed tokens_computed bytes_raw bytes_stored seconds",
    "context-access": "offset block first_token_ms restored_bytes memory_bytes",
    "context-bench-summary": "blocks tokens windows",
}
"""By type: numbers and flags that no other figure in the file tells."""

RAW_OF_EXCHANGE = (
    "machine", "load_after", "pages", "plain_runs", "kvg_runs", "bytes", "half",
    "kvg_cpu_seconds", "plain_cpu_seconds",
    "nothing_new", "memory", "cp, sha256, sync", "rsync, fsync", "rclone, sync",
    "rclone, sha256, sync",
)  # fmt: skip
"""The same of ``exchange.json``."""


def check_shape(row: Row, what: str) -> None:
    need(isinstance(row.get("type"), str), f"{what}: no type")
    kind = row["type"]
    need(kind in SHAPES, f"{what}: {kind}: not a type of record")
    shape = dict(item.split(":") for item in SHAPES[kind].split())
    optional = {name for name, form in shape.items() if form.startswith("?")}
    names = row.keys() - {"type", VERSION}
    need(names <= shape.keys(), f"{what}: {kind}: unknown {sorted(names - shape.keys())}")
    missing = shape.keys() - names - optional
    need(not missing, f"{what}: {kind}: no {sorted(missing)}")
    need(row.get(VERSION, 1) == 1, f"{what}: {kind}: version {row.get(VERSION)}")
    for name in names:
        need(is_formed(row[name], shape[name]), f"{what}: {kind}: {name} is {row[name]!r}"[:200])


def is_formed(value: object, form: str) -> bool:
    if form.startswith("?"):
        return value is None or is_formed(value, form[1:])
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return {
        "n": lambda: is_number and isinstance(value, int) and value >= 0,
        "x": lambda: is_number and math.isfinite(value) and value >= 0,
        "f": lambda: is_number and math.isfinite(value),
        "s": lambda: isinstance(value, str) and bool(value),
        "t": lambda: isinstance(value, str),
        "b": lambda: isinstance(value, bool),
        "d": lambda: isinstance(value, str) and DIGEST.fullmatch(value) is not None,
        "l": lambda: isinstance(value, list),
        "o": lambda: isinstance(value, dict),
    }[form]()
