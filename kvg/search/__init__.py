"""Lexical search over the text of contexts: the only home of SQLite."""

from kvg.search.passages import (
    SECTION_START,
    Hit,
    Passage,
    PassageIndex,
    build_index,
    cut_passages,
    rows_of,
)

__all__ = [
    "SECTION_START",
    "Hit",
    "Passage",
    "PassageIndex",
    "build_index",
    "cut_passages",
    "rows_of",
]
