"""Recount published results: every figure that follows from others, from the rows in its file.

A folder of results holds ``SHA256SUMS`` (``sha256sum *.json *.jsonl > SHA256SUMS`` in it), which
has to name every file and fit.

What is checked of a file:

- its records are exactly those of one benchmark: a type, a field or a summary that is missing,
  renamed or unknown is wrong;
- every count, sum, median, ratio and share is what its rows give;
- grids are whole: no sample, split, offset or task is missing or there twice.

What follows from nothing else in its file stands in ``RAW`` of ``shapes.py``: settings, and what
was measured. An edit of one of those is seen by ``SHA256SUMS`` alone, so only as far as you believe
that file; ask the repository's history when it changed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

from rechecking import figures as f
from rechecking.rows import Row, Rows, Table, Wrong, need, parse, same
from rechecking.shapes import check_shape

SUMS = "SHA256SUMS"

OPTIONAL = {
    "restore-verified",
    "restore-part",
    "restore-skipped",
    "context-made",
}
"""What a benchmark leaves out when told so, or where it cannot be."""

BENCHES: tuple[tuple[str, Callable[[Table], None]], ...] = (
    ("bench-setup exactness-run exactness-row exactness-summary", f.check_exactness),
    ("lengths-setup length lengths-summary", f.check_lengths),
    ("bench-setup logits-moved keys-moved own-position-summary", f.check_moved),
    ("setup accuracy accuracy-row", f.check_accuracy),
    ("bench-setup speed-row", f.check_speed),
    ("prefill-setup prefill-sum prefill-operator prefill-call", f.check_prefill),
    ("bench-machine select-batch select-time select-summary", f.check_select),
    ("bench-machine select-row", f.check_similarity),
    ("bench-setup acceptance-run acceptance-summary", f.check_acceptance),
    ("bench-setup capability-run capability-summary", f.check_capability),
    ("bench-setup recurring-run recurring-summary", f.check_recurring),
    ("families-answer families-summary", f.check_families),
    ("class prereg-sample prereg-summary own foreign", f.check_prereg),
    ("fuzz", f.check_fuzz),
    ("bench-machine fuzz-guided fuzz-corpus", f.check_guided),
    ("bench-machine stress", f.check_stress),
    ("bench-machine crash power-loss crash-summary", f.check_crash),
    ("machine verify growth", f.check_store),
    (
        "bench-setup restore-row restore-stage restore-verified restore-part restore-other "
        "restore-skipped restore-summary",
        f.check_restore,
    ),
    ("bench-setup store-deposit store-row", f.check_stored),
    ("bench-setup energy-row", f.check_energy),
    ("bench-setup choosing-row", f.check_choosing),
    ("bench-setup asking-row asking-summary", f.check_asking),
    ("bench-setup session-start session-deposit", f.check_session),
    ("bench-setup context-abreast", f.check_abreast),
    ("bench-setup context-made context-access context-bench-summary", f.check_context),
)


def check_rows(rows: Rows, what: str) -> None:
    """Raise ``Wrong`` unless the records of one file are a benchmark's and its sums hold."""
    for number, row in enumerate(rows, 1):
        check_shape(row, f"{what} line {number}")
    kinds = {row["type"] for row in rows}
    for names, check in BENCHES:
        known = set(names.split())
        if known - OPTIONAL <= kinds <= known and (kinds - {"bench-setup", "machine"}):
            check(Table(rows, what))
            return
    raise Wrong(f"{what}: {', '.join(sorted(kinds))}: not all the records of one benchmark")


def check_exchange(value: Row, what: str) -> None:
    """One JSON document: kvg beside plain tools, the best of several runs."""
    need(value.get("schema") == "kvg.bench.exchange/1", f"{what}: not results of a known kind")
    named = {"schema", "machine", "load_after", "runs", "missing", "pages"}
    if any(name.startswith("directory") for name in value):
        named.add("cp, sha256, sync")
    need(named <= value.keys(), f"{what}: no {sorted(named - value.keys())}")
    if not any(map(COMPARED.fullmatch, value)):
        same(value["runs"], 1, f"{what}: runs, where nothing is compared")
    for name in sorted(value.keys() - named):
        need(name in ALONE or COMPARED.fullmatch(name) is not None, f"{what}: {name}: unknown")
        if name == "half":
            half = value[name]
            need(half.keys() == {"whole_bytes", "sent_bytes", "share"}, f"{what}: half: fields")
            same(half["share"], round(half["sent_bytes"] / half["whole_bytes"], 3), f"{what}: half")
        elif name == "nothing_new":
            for row in value[name]:
                same(row["again_seconds"], min(row["again_runs"]), f"{what}: again_seconds")
        elif name in MORE:
            need(all(isinstance(took, float) for took in value[name]), f"{what}: {name}")
        elif name == "memory":
            fields = {"ref", "push_peak_bytes", "clone_peak_bytes", "bytes"}
            need(all(row.keys() == fields for row in value[name]), f"{what}: memory: fields")
        else:
            check_compared(value[name], f"{what}: {name}")
            times = 1 if ONCE.fullmatch(name) else value["runs"]
            for runs in ("kvg_runs", "plain_runs"):
                same(times, len(value[name][runs]), f"{what}: {name}: {runs}")


MORE = ("rsync, fsync", "rclone, sync", "rclone, sha256, sync")
ALONE = ("half", "nothing_new", "memory", *MORE)
COMPARED = re.compile("(directory|ssh|s3), codec [012]|(http|s3), clone")
ONCE = re.compile("s3, codec [012]")
"""What is run once, however often the others are."""


def check_compared(row: Row, what: str) -> None:
    names = {"kvg_seconds", "plain_seconds", "ratio", "kvg_runs", "plain_runs"}
    more = {"bytes", "kvg_cpu_seconds", "plain_cpu_seconds"}
    need(names <= row.keys() <= names | more, f"{what}: other fields")
    ours, theirs = min(row["kvg_runs"]), min(row["plain_runs"])
    same(row["kvg_seconds"], ours, f"{what}: kvg_seconds")
    same(row["plain_seconds"], theirs, f"{what}: plain_seconds")
    same(row["ratio"], round(theirs / ours, 3), f"{what}: ratio")


def check_file(path: Path) -> int:
    """Raise ``Wrong`` unless every figure in the file follows; how many records it has."""
    data, what = path.read_bytes(), path.name
    if path.suffix == ".json":
        check_exchange(parse(data, what), what)
        return 1
    rows = [parse(line, f"{what} line {n}") for n, line in enumerate(data.splitlines(), 1)]
    need(bool(rows), f"{what}: empty")
    check_rows(rows, what)
    return len(rows)


def read_sums(folder: Path) -> dict[str, str]:
    """The digest of each file that the folder's ``SHA256SUMS`` names. Raises ``Wrong``."""
    path = folder / SUMS
    need(path.is_file(), f"{folder}: no {SUMS}: nothing pins the records")
    told: dict[str, str] = {}
    for line in path.read_text().splitlines():
        digest, _, name = line.partition("  ")
        need(re.fullmatch("[0-9a-f]{64}", digest) is not None and name not in told,
             f"{SUMS}: {line[:80]!r}")  # fmt: skip
        told[name] = digest
    return told


def check_sum(path: Path, told: dict[str, str]) -> None:
    """Raise ``Wrong`` unless ``told`` names the file and its bytes fit."""
    need(path.name in told, f"{path.name}: {SUMS} does not tell of it")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    need(found == told[path.name], f"{path.name}: not the bytes that {SUMS} tells of")


def check_results(place: Path) -> int:
    """Check a folder, or a file, with the ``SHA256SUMS`` in or beside it; the records recounted.

    Raises ``Wrong``, also where there are no sums: then nothing holds what follows from nothing
    else, and nobody would miss a record that was dropped together with what counts it.
    """
    folder, files = place.parent, [place]
    if place.is_dir():
        folder, files = place, sorted([*place.glob("*.jsonl"), *place.glob("*.json")])
    need(bool(files), f"{place}: no results")
    n_rows = sum(check_file(path) for path in files)
    told = read_sums(folder)
    if place.is_dir():
        other = told.keys() ^ {path.name for path in files}
        need(not other, f"{SUMS}: other files: {sorted(other)}")
    for path in files:
        check_sum(path, told)
    return n_rows
