"""Renderers of models and of the machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import cast

from kvg.cli.render import Renderer, View
from kvg.flow.records.models import DoctorCheck, DoctorSummary, ModelEntry

STYLES = {"ok": "green", "warning": "yellow", "failed": "red", "skipped": "dim"}


def parameters(number: int | None) -> str:
    """``135M``, ``1.7B``; empty when not known."""
    if number is None:
        return ""
    if number >= 1_000_000_000:
        return f"{number / 1e9:.1f}B"
    return f"{number / 1e6:.0f}M" if number >= 1_000_000 else f"{number / 1e3:.0f}K"


def family(architecture: str) -> str:
    """``llama`` for ``LlamaForCausalLM``: what people call it."""
    return architecture.partition("For")[0].lower() or architecture


def model(record: ModelEntry, view: View) -> Iterator[str]:
    kind = (
        family(record.architecture),
        parameters(record.parameters),
        record.dtype,
        record.device or "",
    )
    words = " ".join(word for word in kind if word)
    name = view.terminal.out(record.name, "bold")
    default = "  (default)" if record.default else ""
    adapter = f" + {PurePath(record.adapter).name}" if record.adapter else ""
    yield f"{name}  {words}{adapter}{default}\n"
    if view.verbose:
        more = f"  adapter {record.adapter}\n" if record.adapter else ""
        yield f"  {record.path}\n{more}  {record.fingerprint}\n"


def check(record: DoctorCheck, view: View) -> Iterator[str]:
    mark = view.terminal.out(f"{record.status:<7}", STYLES[record.status])
    yield f"{mark}  {record.name}: {record.detail}\n"
    if record.hint and record.status in ("warning", "failed"):
        yield f"         hint: {record.hint}\n"


def doctor_summary(record: DoctorSummary, view: View) -> Iterator[str]:
    exact = {True: "exact", False: "not exact", None: "not proved: no model"}[record.exact]
    yield f"device {record.device}  grafts: {exact}\n"


RENDERERS = cast(
    "dict[str, Renderer]", {"model": model, "check": check, "doctor-summary": doctor_summary}
)
