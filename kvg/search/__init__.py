"""Lexical search over the text of contexts: the only home of SQLite."""

from kvg.search.passages import Hit, Passage, PassageIndex, build_index, cut_passages, rows_of

__all__ = ["Hit", "Passage", "PassageIndex", "build_index", "cut_passages", "rows_of"]
