"""Renderers of what an artifact holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from kvg.cli.render import Renderer, View
from kvg.cli.render.words import brief, columns, count, gates_listed, listed, size
from kvg.cli.terminal import on_one_line, printable
from kvg.flow.records.artifacts import Artifact, Attestation, Difference, DiffSummary, ObjectBytes


def artifact(record: Artifact, view: View) -> Iterator[str]:
    """What it is, in a dozen lines; ``--json`` has all of it."""
    pages = record.pages
    size_bytes = sum(cast("int", page["size"]) for page in pages)
    yield f"artifact {record.digest}\n"
    yield columns(
        (
            ("refs", listed(record.refs) + (" (pinned)" if record.pinned else "")),
            ("model", f"{record.model['architecture']} {record.model['dtype']}"),
            ("", str(record.model["fingerprint"])),
            ("engine", str(record.engine["reference"])),
            ("", str(record.engine["fingerprint"])),
            (
                "tokens",
                f"{record.tokens['count']:,} at {record.positions[0]}–{record.positions[1]}",
            ),
            ("layout", _layout(record.layout)),
            ("pages", f"{len(pages):,}, {size(size_bytes)}"),
            ("witnesses", ", ".join(str(w["position"]) for w in record.witnesses)),
            ("gates", gates_listed(record.gates, record.unenclosed)),
        )
    )
    if record.stale is not None:
        yield f"{view.terminal.out(printable(record.stale), 'yellow')}\n"
    for attested in record.attestations:
        yield from attestation(attested, view)
    if view.verbose:
        for page in pages:
            yield f"page {page['group']} {page['positions']} {page['digest']}\n"


def attestation(record: Attestation, view: View) -> Iterator[str]:
    who = ", ".join(keyid[:6] for keyid in record.signers) or "nobody known"
    trusted = "trusted" if record.trusted else view.terminal.out("not trusted", "yellow")
    said = (str(record.detail[name]) for name in ("gate", "result") if name in record.detail)
    what = on_one_line(" ".join((record.kind, *said)))
    yield f"{what} signed by {who}, {trusted}, log entry {record.log_index}\n"
    if view.verbose:
        for name, value in record.detail.items():
            yield f"  {name}: {printable(_short(value))}\n"


def difference(record: Difference, view: View) -> Iterator[str]:
    yield f"{record.field}\n"
    yield view.terminal.out(f"- {printable(_short(record.a))}", "red") + "\n"
    yield view.terminal.out(f"+ {printable(_short(record.b))}", "green") + "\n"


def diff_summary(record: DiffSummary, view: View) -> Iterator[str]:
    if record.same:
        yield f"same artifact {brief(record.a)}\n"
        return
    yield (
        f"{count(record.common_tokens, 'token')} and {count(record.common_pages, 'page')} "
        "in common; "
        f"{count(record.only_a_pages, 'page')} only in {brief(record.a)}, "
        f"{count(record.only_b_pages, 'page')} only in {brief(record.b)}\n"
    )


def object_bytes(record: ObjectBytes, view: View) -> Iterator[str]:
    yield record.base64 + "\n"


def _layout(layout: Mapping[str, object]) -> str:
    groups = cast("tuple[Mapping[str, object], ...]", layout["groups"])
    parts = (f"{g['name']} ({len(cast('tuple[int, ...]', g['layers']))} layers)" for g in groups)
    return f"{', '.join(parts)}, pages of {layout['page_tokens']}"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 200 else text[:199] + "…"


RENDERERS = cast(
    "dict[str, Renderer]",
    {
        "artifact": artifact,
        "attestation": attestation,
        "difference": difference,
        "diff-summary": diff_summary,
        "object": object_bytes,
    },
)
