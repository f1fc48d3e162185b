"""Numbers, sizes, times and digests as people read them."""

from __future__ import annotations

import time
from collections.abc import Mapping

from kvg.cli.terminal import on_one_line

BARE = "sandbox: none"
"""What is said of a check that ran without a sandbox."""

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def count(number: int, noun: str) -> str:
    """``6,412 tokens``; ``1 token``. The noun is given in the singular and takes an s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def artifacts_and_methods(n_artifacts: int, n_methods: int) -> str:
    """``1 artifact, 2 methods``; methods only where there are some."""
    methods = f", {count(n_methods, 'method')}" if n_methods else ""
    return f"{count(n_artifacts, 'artifact')}{methods}"


def size(size_bytes: int) -> str:
    """Bytes in powers of 1024: ``3.1 MiB``."""
    amount, unit = float(size_bytes), 0
    while amount >= 1024 and unit < len(UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.1f} {UNITS[unit]}" if unit else f"{size_bytes} B"


def seconds(ms: float) -> str:
    """Milliseconds as people say them: ``12 ms``, ``0.1 s``, ``41 s``."""
    if ms < 100:
        return f"{ms:.0f} ms"
    return f"{ms / 1000:.1f} s" if ms < 10_000 else f"{ms / 1000:,.0f} s"


def when(unix_time: int) -> str:
    """A moment in UTC, to the second; seconds since 1970 where no calendar goes that far."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(unix_time))
    except (OverflowError, ValueError, OSError):
        return f"{unix_time} s"


def brief(digest: str) -> str:
    """``sha256:`` and 6 digits, with an ellipsis."""
    return digest[:13] + "…"


def values(figures: Mapping[str, object], between: str) -> str:
    """Named values in one line; fractions with four digits that count."""
    shown = (
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in figures.items()
    )
    return between.join(map(on_one_line, shown))


def gates_listed(names: tuple[str, ...], unenclosed: tuple[str, ...]) -> str:
    """Gates joined by commas, with a word for those that ran without a sandbox."""
    return listed(tuple(f"{name} ({BARE})" if name in unenclosed else name for name in names))


def listed(names: tuple[str, ...]) -> str:
    """Names joined by commas; ``none`` when there are none."""
    return ", ".join(map(on_one_line, names)) or "none"


def columns(terms: tuple[tuple[str, str], ...]) -> str:
    """Lines of ``term  text``, the terms padded to one width."""
    width = max(len(term) for term, _ in terms)
    return "".join(f"{term:<{width}}  {text}\n" for term, text in terms)
