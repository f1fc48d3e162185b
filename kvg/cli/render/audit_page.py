"""An audit as one HTML page: no network, whole with scripts off, filters and sorting with them on.

Everything from the store is escaped; the page's own policy forbids any script and style but the two
below, by their digests.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Iterator, Sequence

from kvg.cli.render.audit import UNREAD, keys_of, log_of, nameless, signed_by, trust_of
from kvg.cli.render.audit_style import SCRIPT, STYLE
from kvg.cli.render.words import count, gates_listed, size, values, when
from kvg.cli.terminal import on_one_line
from kvg.digest import sha256_bytes
from kvg.flow.records.audit import Audit, AuditedArtifact, PublishedFigure
from kvg.signing import base64

BARS, ROW, MOST_NAME = 20, 40, 40
MOST_DIGESTS = 2000
BAD = ("not verified", "FAILED", "revoked")
_NUMBER = re.compile(r"[0-9][0-9.,]*( [KMGT]?i?B)?")
_DIGEST = re.compile(r"\bsha256:[0-9a-f]{64}\b")
WIDTH, HEIGHT, LEFT = 640, 220, 90
LEAST, MOST = 1e-6, 1e15
FORM = ("form", "cache")
"""What tells the rows of one measurement of grafts apart."""


def escape(text: str) -> str:
    """``text`` as it may stand in the page: no markup, and nothing that can't be seen."""
    return html.escape(on_one_line(text))


def page_of(record: Audit) -> str:
    """The page."""
    policy = (
        f"default-src 'none'; style-src '{_source(STYLE)}'; script-src '{_source(SCRIPT)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    body = "\n".join(_body(record))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>kvg audit of {escape(record.origin or record.store)}</title>\n"
        f"<style>{STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def _source(text: str) -> str:
    return "sha256-" + base64.encode(sha256_bytes(text.encode("utf-8")))


def _body(record: Audit) -> Iterator[str]:
    yield (
        f"<header><h1>kvg audit</h1><p>{escape(record.store)}<br>log {escape(log_of(record))}, "
        f"audited {escape(when(record.audited))}</p></header>\n<main>"
    )
    yield _verdicts(record)
    yield _section("Findings", "findings", _findings(record))
    yield _section("Not checked", "unchecked", _list(record.unchecked))
    yield _section("Artifacts", "artifacts", _artifacts(record))
    yield _section("Size by artifact", "sizes", bars(record.artifacts))
    yield _section("Statements and their evidence", "said", _said(record.artifacts))
    yield _section("Trust", "trust", _trust(record))
    if record.results:
        yield _section("Published figures", "results", _results(record.results))
        drawn = restoring(record.results)
        if drawn:
            yield _section("Restore against prefill", "restore", drawn)
    yield _section("Growth of the log", "growth", growth(record.growth))
    yield _section("Log, newest first", "log", _timeline(record))
    yield "</main>"


def _section(title: str, name: str, content: str) -> str:
    return f'<section id="{name}"><h2>{title}</h2>\n{content}\n</section>'


def _verdicts(record: Audit) -> str:
    checks = (
        ("bytes", record.bytes_ok),
        ("signatures", record.signatures_ok),
        ("policy", record.policy_ok),
    )
    cells = [
        f'<li class="{"good" if is_good else "bad"}"><b>{name}</b> {"ok" if is_good else "NOT ok"}'
        for name, is_good in checks
    ]
    cells.append('<li class="open"><b>truth</b> not recomputed')
    amount = f"{count(record.objects, 'object')}, {size(record.bytes)} read"
    return f'<ul class="verdicts">{"".join(cells)}</ul>\n<p>{escape(amount)}</p>'


def _findings(record: Audit) -> str:
    if not record.findings:
        return "<p>None.</p>"
    rows = [(item.kind, item.object, item.message, item.hint or "") for item in record.findings]
    return _table(("kind", "object", "what is wrong", "hint"), rows)


def _list(sentences: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(sentence)}' for sentence in sentences)}</ul>"


def _artifacts(record: Audit) -> str:
    rows = [
        (
            ", ".join(item.refs) or nameless(item),
            item.digest,
            "stands" if item.stands else "not verified",
            "" if item.tokens is None else f"{item.tokens:,}",
            "" if item.bytes is None else size(item.bytes),
            item.model or "",
            signed_by(item, 12),
            _keys(item.verifiers),
            gates_listed(item.gates, item.unenclosed),
            ", ".join(item.failed),
            item.stale or "",
        )
        for item in record.artifacts
    ]
    names = ("ref", "digest", "verdict", "tokens", "size", "model")
    return _table((*names, "signed by", "replayed by", "gates", "failed", "stale"), rows)


def _said(artifacts: Sequence[AuditedArtifact]) -> str:
    rows = [
        (
            item.refs[0] if item.refs else item.digest,
            f"{said.index:,}",
            said.kind,
            said.result or "",
            keys_of(said, 12),
            "; ".join(f"{name} {digest or ''}".strip() for name, digest in said.evidence.items()),
            said.envelope,
        )
        for item in artifacts
        for said in item.said
    ]
    names = ("artifact", "log entry", "what", "result", "signed by", "points at", "envelope")
    return _table(names, rows)


def _results(figures: Sequence[PublishedFigure]) -> str:
    """A table for each file, and below it the digests that its figures rest on."""
    parts = []
    for name in dict.fromkeys(figure.file for figure in figures):
        mine = [figure for figure in figures if figure.file == name]
        rows = [
            (
                figure.kind,
                values(figure.figures, "; "),
                f"{figure.samples:,}",
            )
            for figure in mine
        ]
        digests = list(dict.fromkeys(digest for figure in mine for digest in figure.digests))
        listed = "\n".join(escape(digest) for digest in digests[:MOST_DIGESTS])
        left = len(digests) - MOST_DIGESTS
        rest = f"<p>{left:,} more are in the file.</p>" if left > 0 else ""
        behind = (
            f"<details><summary>{count(len(digests), 'digest')} of inputs and outputs behind it"
            f"</summary><pre>{listed}</pre>{rest}</details>"
        )
        parts.append(
            f"<h3>{escape(name)}</h3><p>The file is <code>{escape(mine[0].digest)}</code>.</p>\n"
            f"{_table(('figure', 'values', 'samples'), rows)}\n"
            f"{behind if digests else '<p>It names no digest of what is behind it.</p>'}"
        )
    return "\n".join(parts)


def restoring(figures: Sequence[PublishedFigure]) -> str:
    """Milliseconds of prefill and of a graft by tokens, both axes logarithmic, as inline SVG.

    Of grafts in several forms and caches those of the first are drawn; empty where none is told.
    """
    told = [figure for figure in figures if all(_restored(figure))]
    if not told:
        return ""
    kind = _form(told[0])
    points = sorted(_restored(figure) for figure in told if _form(figure) == kind)
    times = [ms for _, *both in points for ms in both]
    base, top, least = HEIGHT - 30, max(times), min(times)
    first, last = points[0][0], points[-1][0]

    def place(tokens: float, ms: float) -> str:
        x = LEFT + (WIDTH - LEFT - 10) * _share(tokens, first, last)
        return f"{x:.0f},{base - (base - 15) * _share(ms, least, top):.0f}"

    def line(name: str, at: int, below: int) -> str:
        places = [place(point[0], point[at]) for point in points]
        path, end = " ".join(places), places[-1].partition(",")[2]
        dots = "".join(_dot(spot) for spot in places)
        label = f'<text x="{WIDTH - 10}" y="{int(end) + below}" text-anchor="end">{name}</text>'
        return f'<polyline points="{path}"/>{dots}{label}'

    parts = [
        f'<line x1="{LEFT}" y1="{base}" x2="{WIDTH}" y2="{base}"/>',
        line("prefill", 1, 24),
        line("graft to first token", 2, -14),
        f'<text x="0" y="20">{top:,.0f} ms</text><text x="0" y="{base}">{least:,.0f} ms</text>',
        f'<text x="{LEFT}" y="{HEIGHT - 8}">{first:,.0f} tokens</text>',
        f'<text x="{WIDTH}" y="{HEIGHT - 8}" text-anchor="end">{last:,.0f} tokens</text>',
    ]
    how = ", ".join(f"{name} {value}" for name, value in zip(FORM, kind, strict=True) if value)
    note = f"<p>Grafts: {escape(how)}.</p>" if how else ""
    return _svg(HEIGHT, "prefill and graft by tokens, logarithmic", parts) + note


def _dot(place: str) -> str:
    x, _, y = place.partition(",")
    return f'<circle cx="{x}" cy="{y}" r="3"/>'


def _share(value: float, least: float, most: float) -> float:
    """Where ``value`` lies between the two, 0 to 1, on a logarithmic axis."""
    span = math.log(most) - math.log(least)
    return (math.log(value) - math.log(least)) / span if span > 0 else 0.0


def _form(figure: PublishedFigure) -> tuple[object, ...]:
    """In which form and cache a graft was measured."""
    return tuple(figure.figures.get(name) for name in FORM)


def _restored(figure: PublishedFigure) -> tuple[float, float, float]:
    """Tokens, and ms to the first token by prefill and by graft; zeros where it tells none."""
    found = (figure.figures.get(name) for name in ("tokens", "prefill_ms", "first_token_ms"))
    tokens, prefill, graft = map(_positive, found)
    return tokens, prefill, graft


def _positive(value: object) -> float:
    """``value`` if it is a number that can be drawn, else 0: others wrote it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if LEAST <= value <= MOST else 0.0


def _trust(record: Audit) -> str:
    rows = [
        (key.keyid, key.name or "", ", ".join(key.roles), "revoked" if key.revoked else "")
        for key in record.keys
    ]
    gone = [f"{item.keyid} counts only before entry {item.size:,} of {item.origin}"
            for item in record.revoked]  # fmt: skip
    seen = [f"{item.name} cosigned size {item.size:,}, at {when(item.time)} by its own clock"
            for item in record.witnesses]  # fmt: skip
    required = ", ".join(record.required) or "none"
    facts = (f"Trust file: {trust_of(record).strip()}.",
             f"Gates required: {required}.", f"Log key: {record.verifier or UNREAD}")  # fmt: skip
    return _table(("key", "your name for it", "roles", ""), rows) + _list((*facts, *gone, *seen))


def _timeline(record: Audit) -> str:
    rows = [
        (
            f"{entry.index:,}",
            when(entry.time),
            entry.entry,
            entry.ref or "",
            entry.digest or entry.keyid or "",
            entry.detail or entry.previous or "",
        )
        for entry in record.timeline
    ]
    left = record.timeline[-1].index if record.timeline else 0
    rest = f"<p>{left:,} older entries are not listed.</p>" if left else ""
    return _table(("entry", "time", "type", "ref", "about", "detail"), rows) + rest


def _keys(keyids: Sequence[str]) -> str:
    return ", ".join(keyid[:12] for keyid in keyids) or "nobody"


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    body = "".join(f"<tr>{''.join(map(_cell, names, row))}</tr>\n" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"
    return f'<div class="wide">{table}</div>'


def _cell(name: str, text: str) -> str:
    kinds = (
        ("bad", text in BAD),
        ("long", _DIGEST.search(text) is not None),
        ("num", _NUMBER.fullmatch(text) is not None),
    )
    classes = " ".join(kind for kind, is_so in kinds if is_so)
    marked = f' class="{classes}"' if classes else ""
    shown = _DIGEST.sub(r"<code>\g<0></code>", escape(text))
    return f'<td data-name="{escape(name)}"{marked}>{shown}</td>'


def bars(artifacts: Sequence[AuditedArtifact]) -> str:
    """Horizontal bars of the largest artifacts, as inline SVG."""
    known = [item for item in artifacts if item.bytes is not None]
    largest = sorted(known, key=lambda item: -(item.bytes or 0))[:BARS]
    if not largest:
        return "<p>No artifact.</p>"
    top = max(item.bytes or 0 for item in largest) or 1
    height = ROW * len(largest)
    parts = []
    for n, item in enumerate(largest):
        name = item.refs[0] if item.refs else item.digest[:19]
        width = max(2, WIDTH * (item.bytes or 0) // top)
        label = escape(f"{_brief(name)}  {size(item.bytes or 0)}")
        whole = f"<title>{escape(name)}</title>"
        parts.append(f'<text x="0" y="{ROW * n + 18}">{whole}{label}</text>')
        parts.append(f'<rect x="0" y="{ROW * n + 24}" width="{width}" height="10"/>')
    left = len(known) - len(largest)
    rest = f"<p>{left:,} smaller ones are not drawn.</p>" if left else ""
    return _svg(height, "size by artifact", parts) + rest


def _brief(name: str) -> str:
    """``name`` as far as a phone has room for it beside a size; both of its ends."""
    return name if len(name) <= MOST_NAME else f"{name[:24]}…{name[25 - MOST_NAME :]}"


def growth(points: Sequence[tuple[int, int]]) -> str:
    """Entries of the log over the writers' time, as inline SVG."""
    if not points:
        return "<p>There is no entry that can be read.</p>"
    first, last = min(t for t, _ in points), max(t for t, _ in points)
    most, span = points[-1][1], max(1, last - first)
    base = HEIGHT - 30
    path = " ".join(
        f"{LEFT + (WIDTH - LEFT - 10) * (t - first) // span},{base - (base - 15) * n // most}"
        for t, n in points
    )
    parts = [
        f'<line x1="{LEFT}" y1="{base}" x2="{WIDTH}" y2="{base}"/>',
        f'<polyline points="{LEFT},{base} {path}"/>',
        f'<text x="0" y="20">{most:,}</text><text x="0" y="{base}">0</text>',
        f'<text x="{LEFT}" y="{HEIGHT - 8}">{escape(when(first))}</text>',
        f'<text x="{WIDTH}" y="{HEIGHT - 8}" text-anchor="end">{escape(when(last))}</text>',
    ]
    return _svg(HEIGHT, "entries of the log over time", parts)


def _svg(height: int, title: str, parts: Sequence[str]) -> str:
    inner = "".join(parts)
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img"><title>{title}</title>{inner}</svg>'
