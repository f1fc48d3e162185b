"""Rows of results: how one is read, and what is asked of many."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Sequence

Row = dict
Rows = Sequence[Row]


class Wrong(Exception):
    """What is checked does not hold."""


def need(holds: bool, message: str) -> None:
    if not holds:
        raise Wrong(message)


def same(told: object, found: object, what: str) -> None:
    """Numbers to the last digits, everything else exactly."""
    close = told == found and isinstance(told, bool) is isinstance(found, bool)
    if isinstance(told, float) and isinstance(found, int | float):
        close = math.isclose(told, found, rel_tol=1e-9, abs_tol=1e-12)
    need(close, f"{what} is {told}, recounted {found}")


def expect(row: Row, what: str, **found: object) -> None:
    for name, value in found.items():
        same(row[name], value, f"{what}: {row['type']}: {name}")


def parse(data: bytes, what: str) -> Row:
    def unique(pairs: list[tuple[str, object]]) -> Row:
        need(len({name for name, _ in pairs}) == len(pairs), f"{what}: a JSON key appears twice")
        return dict(pairs)

    def finite(text: str) -> float:
        need(math.isfinite(float(text)), f"{what}: {text[:40]} is no number")
        return float(text)

    try:
        value = json.loads(
            data.decode(), object_pairs_hook=unique, parse_float=finite, parse_constant=finite
        )
    except (ValueError, RecursionError) as error:
        raise Wrong(f"{what}: not JSON: {error}") from None
    need(isinstance(value, dict), f"{what}: not a JSON object")
    return value


class Table:
    """The records of one file, by type."""

    def __init__(self, rows: Rows, what: str) -> None:
        self.what = what
        self._of: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            self._of[row["type"]].append(row)

    def of(self, kind: str, **having: object) -> list[Row]:
        rows = self._of[kind]
        return [r for r in rows if all(r[name] == value for name, value in having.items())]

    def one(self, kind: str) -> Row:
        need(len(self._of[kind]) == 1, f"{self.what}: {len(self._of[kind])} of {kind}")
        return self._of[kind][0]

    def grid(self, rows: Rows, *names: str) -> None:
        """Every combination of what stands in ``names``, each once."""
        places = Counter(tuple(row[name] for name in names) for row in rows)
        wanted = math.prod(len({row[name] for row in rows}) for name in names)
        need(
            len(places) == wanted == len(rows),
            f"{self.what}: {len(rows)} rows of {wanted} combinations of {', '.join(names)}",
        )

    def numbered(self, rows: Rows, name: str) -> None:
        found = [row[name] for row in rows]
        need(found == list(range(len(found))), f"{self.what}: {name}: not each once, in order")


def median(values: Sequence[float]) -> float:
    ordered, half = sorted(values), len(values) // 2
    need(bool(ordered), "a median of nothing")
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def slope_of(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float]:
    """The slope of the least-squares line, and its standard error."""
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - x_mean) ** 2 for x in xs)
    if spread == 0 or len(xs) < 3:
        return 0.0, 0.0
    slope = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True)) / spread
    rest = sum((y - y_mean - slope * (x - x_mean)) ** 2 for x, y in zip(xs, ys, strict=True))
    return slope, (rest / (len(xs) - 2) / spread) ** 0.5
