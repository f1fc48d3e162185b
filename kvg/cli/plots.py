"""Pictures of measurements, as PNG and SVG: the only home of matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, cast

from kvg import durable
from kvg.errors import Incompatible, UsageError
from kvg.flow.records.bench import ContextAccess, ContextBenchSummary, RestoreRow

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from kvg.flow.records.record import Record

SUFFIXES = (".png", ".svg")


def plotted(records: Iterable[Record], path: Path | None) -> Iterator[Record]:
    """``records`` as they come, and once they have all come a picture of them at ``path``.

    Both a PNG and an SVG are written, whichever ``path`` names; of several kinds of measurement one
    picture each, ``path`` with the kind added to its name. Raises before anything is measured:
    ``UsageError`` for another ending, ``Incompatible`` without matplotlib, and as
    ``durable.check_target``.
    """
    if path is None:
        yield from records
        return
    if path.suffix not in SUFFIXES:
        raise UsageError(f"--plot {path}: not .png or .svg")
    for suffix in SUFFIXES:
        durable.check_target(path.with_suffix(suffix), option="--plot")
    _figure()
    kept = []
    for record in records:
        kept.append(record)
        yield record
    kinds = [kind for kind in _PICTURES if any(record.type == kind for record in kept)]
    for kind in kinds:
        figure, own = _figure(), [record for record in kept if record.type == kind]
        _PICTURES[kind](figure, own, kept)
        name = path if len(kinds) == 1 else path.with_stem(f"{path.stem}-{kind.partition('-')[0]}")
        _save(figure, name)


def _figure() -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise Incompatible(
            "matplotlib is not installed: --plot needs it", hint="pip install 'kvg[plot]'"
        ) from None
    return Figure(figsize=(8, 5), layout="constrained")


def _save(figure: Figure, path: Path) -> None:
    for suffix in SUFFIXES:
        with durable.translated(path):
            figure.savefig(path.with_suffix(suffix), dpi=150)


def _restore(figure: Figure, rows: list[Record], _: list[Record]) -> None:
    """Time to the first token by length: prefill, and grafts in each form and cache."""
    axes = figure.subplots()
    found = cast("list[RestoreRow]", rows)
    lines: dict[str, list[tuple[int, float]]] = {}
    for row in found:
        lines.setdefault("prefill", []).append((row.tokens, row.prefill_ms))
        name = f"graft, {row.form}, {row.cache} cache"
        lines.setdefault(name, []).append((row.tokens, row.first_token_ms))
    for name, points in lines.items():
        ordered = sorted(set(points))
        axes.plot([x for x, _ in ordered], [y for _, y in ordered], marker="o", label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    _labelled(axes, "tokens", "ms to the first token", "Graft against prefill")


def _context(figure: Figure, rows: list[Record], records: list[Record]) -> None:
    """Time against depth, and memory over the first access."""
    upper, lower = figure.subplots(2, 1)
    found = cast("list[ContextAccess]", rows)
    upper.scatter(
        [r.offset for r in found], [r.first_token_ms for r in found], s=12, label="access"
    )
    summaries = [record for record in records if isinstance(record, ContextBenchSummary)]
    for summary in summaries:
        upper.axhline(summary.median_ms, color="tab:orange", label="median")
    upper.set_ylim(bottom=0)
    _labelled(upper, "token of the context", "ms to the first token", "Access time against depth")
    first = found[0].memory_bytes
    lower.plot([r.number for r in found], [(r.memory_bytes - first) / 2**20 for r in found])
    _labelled(lower, "access", "MiB over the first", "Memory")


def _labelled(axes: Axes, x: str, y: str, title: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title)
    axes.grid(visible=True, alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small")


_PICTURES: dict[str, Callable[[Figure, list[Record], list[Record]], None]] = {
    "restore-row": _restore,
    "context-access": _context,
}
