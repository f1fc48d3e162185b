"""Tables of published results in a page, each between two marks that name what measured it."""

from __future__ import annotations

END = "<!-- end -->\n"


def mark_of(script: str) -> str:
    """The line that the table of ``script`` stands behind."""
    return f"<!-- bench/{script}.py -->\n"


def between(page: str, script: str) -> str:
    """What stands between the marks."""
    return page.partition(mark_of(script))[2].partition(END)[0].strip()


def filled(page: str, script: str, table: str) -> str:
    """``page`` with ``table`` between the marks of ``script``."""
    head, mark, rest = page.partition(mark_of(script))
    if not mark:
        raise SystemExit(f"no {mark_of(script).strip()} in the page")
    return f"{head}{mark}\n{table}\n{END}{rest.partition(END)[2]}"
