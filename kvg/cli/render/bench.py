"""Renderers of measurements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from kvg.cli.render import Renderer, View
from kvg.cli.render.words import brief, count, seconds
from kvg.flow.records.bench import BenchSetup, ExactnessRow, ExactnessRun, ExactnessSummary


def setup(record: BenchSetup, view: View) -> Iterator[str]:
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    yield (
        f"{record.bench}: {record.model} {record.architecture} {record.dtype}, engine "
        f"{brief(record.engine)}\n{record.cpu}, {count(record.cores, 'core')}, "
        f"{count(record.threads, 'thread')}, {record.device}; {versions}\n"
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


RENDERERS = cast(
    "dict[str, Renderer]",
    {
        "bench-setup": setup,
        "exactness-run": exactness_run,
        "exactness-row": exactness_row,
        "exactness-summary": exactness_summary,
    },
)
