"""Renderers of a verification."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from kvg.cli.render import Renderer, View
from kvg.cli.render.words import artifacts_and_methods, count, size
from kvg.cli.terminal import on_one_line
from kvg.flow.records.findings import Finding, VerifySummary


def finding(record: Finding, view: View) -> Iterator[str]:
    kind = view.terminal.out(record.kind, "red")
    named = record.object in record.message
    message = record.message if named else f"{record.object}: {record.message}"
    yield f"{kind}: {on_one_line(message)}\n"
    if record.hint is not None:
        view.aside(f"hint: {record.hint}")


def verify_summary(record: VerifySummary, view: View) -> Iterator[str]:
    truth = "truth not recomputed"
    if record.recomputed:
        truth = f"truth of {count(record.recomputed, 'page')} recomputed"
    if record.differing:
        truth += ": " + view.terminal.out(f"{record.differing:,} NOT true", "red")
    verdicts = (
        ("bytes", record.bytes_ok),
        ("signature", record.signatures_ok),
        ("policy", record.policy_ok),
    )
    words = ", ".join(
        f"{name} ok" if good else view.terminal.out(f"{name} NOT ok", "red")
        for name, good in verdicts
    )
    absent = f"; {count(record.absent, 'page')} not here, not checked" if record.absent else ""
    what = artifacts_and_methods(record.artifacts, record.methods)
    yield f"{what}: {words}; {truth}{absent}\n"
    if view.verbose:
        yield f"{count(record.objects, 'object')}, {size(record.bytes)} read\n"


RENDERERS = cast("dict[str, Renderer]", {"finding": finding, "verify-summary": verify_summary})
