"""Pictures of measurements, as PNG and SVG: the only home of matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, cast

from kvg import durable
from kvg.errors import Incompatible, UsageError
from kvg.flow.records.bench import (
    ContextAccess,
    ContextBenchSummary,
    EnergyRow,
    RestoreRow,
    SelectTime,
    StoreDeposit,
    StoreRow,
)

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from kvg.flow.records.record import Record

SUFFIXES = (".png", ".svg")

HEADROOM = 1.3
"""How high an axis is, of its highest value: a legend has room above what it names."""

COUNTED = ("tokens", "token of the context", "different blocks so far", "µs")
"""Axes whose numbers are written out, beside those of times, sizes and energy."""


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


CACHE_WORDS = {
    "warm": "warm cache, new slot",
    "kept": "warm cache, kept slot",
    "cold": "cold cache, new slot",
}


def _restore(figure: Figure, rows: list[Record], _: list[Record]) -> None:
    """Time to the first token by length: prefill, and grafts in each form and cache."""
    axes = figure.subplots()
    found = cast("list[RestoreRow]", rows)
    lines: dict[str, list[tuple[int, float]]] = {}
    for row in found:
        lines.setdefault("prefill", []).append((row.tokens, row.prefill_ms))
        name = f"graft, {row.form}, {CACHE_WORDS[row.cache]}"
        lines.setdefault(name, []).append((row.tokens, row.first_token_ms))
    for name, points in lines.items():
        ordered = sorted(set(points))
        axes.plot([x for x, _ in ordered], [y for _, y in ordered], marker="o", label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(sorted({row.tokens for row in found}))
    axes.set_xticks([], minor=True)
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
    upper.set_ylim(0, HEADROOM * max(r.first_token_ms for r in found))
    _labelled(upper, "token of the context", "ms to the first token", "Access time against depth")
    first = found[0].memory_bytes
    lower.plot(_blocks_seen(found), [(r.memory_bytes - first) / 2**20 for r in found], marker=".")
    _labelled(
        lower, "different blocks so far", "MiB over the first access", "Memory against blocks"
    )


def _blocks_seen(accesses: list[ContextAccess]) -> list[int]:
    """How many different blocks the window had held after each access."""
    seen: set[int] = set()
    counts = []
    for access in accesses:
        seen.add(access.block)
        counts.append(len(seen))
    return counts


def _select(figure: Figure, rows: list[Record], _: list[Record]) -> None:
    """Time of each step by the number of families: the middle and the slow end."""
    axes = figure.subplots()
    found = cast("list[SelectTime]", rows)
    names = [f"{row.what}, {row.size:,}" for row in found]
    places = range(len(found))
    axes.barh([at - 0.2 for at in places], [r.median_us for r in found], 0.4, label="median")
    axes.barh([at + 0.2 for at in places], [r.p99_us for r in found], 0.4, label="99 of 100")
    axes.set_yticks(list(places), names, fontsize="small")
    axes.invert_yaxis()
    axes.set_xscale("log")
    _labelled(axes, "µs", "what, of so many families", "Finding a method by exact address")


def _store(figure: Figure, rows: list[Record], records: list[Record]) -> None:
    """What a deposit takes beyond its prefill; what each stored form takes, and to verify."""
    first, second, third = figure.subplots(1, 3)
    deposits = [record for record in records if isinstance(record, StoreDeposit)]
    names = [f"{row.tokens:,} tokens" for row in deposits]
    prefills = [row.prefill_ms for row in deposits]
    first.bar(names, prefills, label="prefill")
    first.bar(names, [row.store_ms for row in deposits], bottom=prefills, label="store")
    first.set_ylim(0, HEADROOM * max(row.prefill_ms + row.store_ms for row in deposits))
    _labelled(first, "", "ms", "A deposit")
    found = cast("list[StoreRow]", rows)
    forms = [row.form for row in found]
    bars = second.bar(forms, [row.bytes_stored / 2**20 for row in found])
    second.bar_label(bars, fmt="{:,.1f}")
    second.margins(y=HEADROOM - 1)
    _labelled(second, "", "MiB", "On disk")
    third.bar(forms, [row.verify_ms for row in found], label="verify")
    third.scatter(forms, [row.sha256_ms for row in found], color="black", label="SHA-256 alone")
    third.set_ylim(0, HEADROOM * max(max(row.verify_ms, row.sha256_ms) for row in found))
    _labelled(third, "", "ms", "To verify every byte")


def _energy(figure: Figure, rows: list[Record], _: list[Record]) -> None:
    """Processor seconds and, where they were counted, joules of each way to the first token."""
    found = cast("list[EnergyRow]", rows)
    counted = [row for row in found if row.joules is not None]
    left, *right = figure.subplots(1, 2 if counted else 1, squeeze=False)[0]
    ways = [f"{row.way}\n{row.tokens_computed:,} computed" for row in found]
    bars = left.bar(ways, [row.cpu_seconds for row in found])
    left.bar_label(bars, fmt="{:,.3g} s")
    left.margins(y=HEADROOM - 1)
    _labelled(left, "", "processor seconds", f"First token after {found[0].tokens:,} tokens")
    for axes in right:
        bars = axes.bar([row.way for row in counted], [row.joules for row in counted])
        axes.bar_label(bars, fmt="{:,.3g} J")
        axes.margins(y=HEADROOM - 1)
        _labelled(axes, "", f"joules ({counted[0].counter})", "Energy to the first token")


def _labelled(axes: Axes, x: str, y: str, title: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title)
    axes.set_axisbelow(True)
    axes.grid(visible=True, alpha=0.3)
    for axis, label in ((axes.xaxis, x), (axes.yaxis, y)):
        if label in COUNTED or label.startswith(("ms", "MiB", "joules")):
            axis.set_major_formatter("{x:,g}")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small")


_PICTURES: dict[str, Callable[[Figure, list[Record], list[Record]], None]] = {
    "restore-row": _restore,
    "context-access": _context,
    "select-time": _select,
    "store-row": _store,
    "energy-row": _energy,
}
