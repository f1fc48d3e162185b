"""Passages of text in SQLite's FTS5, ranked by BM25. An index is a cache: bytes that are made from
the text again whenever they are missing, damaged or of another text.

Source: https://www.sqlite.org/fts5.html
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from kvg.errors import Incompatible
from kvg.frozen import frozen

if TYPE_CHECKING:
    from pathlib import Path

VERSION = 1
"""Of the tables; another one makes an index that is built anew."""

PASSAGE_CHARS = 800
"""A passage ends with the paragraph in which it gets this long, or with a line at twice that."""

MAX_WORDS = 64
MOST_HITS = 1 << 31
"""More than any index has; SQLite's integers end somewhere."""
_WORD = re.compile(r"\w+")
_ROW = re.compile(r"[^\n]*\n|[^\n]+")
_TABLES = """
    CREATE TABLE meta (version INTEGER, mark TEXT);
    CREATE VIRTUAL TABLE passages USING fts5 (
        text, path, block UNINDEXED, line UNINDEXED, tokenize = "unicode61 tokenchars '_'"
    );
"""


@frozen
class Passage:
    """Some lines of one file: ``line`` is the first of them, from 1; ``block`` holds them."""

    block: int
    path: str
    line: int
    text: str


@frozen
class Hit:
    """A passage that was found; the higher ``score``, the better. Equal ones stand in order."""

    passage: Passage
    score: float


def cut_passages(block: int, path: str, line: int, text: str) -> Iterator[Passage]:
    """``text``, which begins at ``line`` of ``path``, in passages of whole lines."""
    held: list[str] = []
    size, first = 0, line
    for number, row in enumerate(rows_of(text), line):
        held.append(row)
        size += len(row)
        if size >= 2 * PASSAGE_CHARS or (size >= PASSAGE_CHARS and not row.strip()):
            yield from _passage(block, path, first, held)
            held, size, first = [], 0, number + 1
    yield from _passage(block, path, first, held)


def _passage(block: int, path: str, line: int, rows: list[str]) -> Iterator[Passage]:
    """One passage, unless it is blank."""
    text = "".join(rows)
    if text.strip():
        yield Passage(block, path, line, text)


def rows_of(text: str) -> list[str]:
    """The lines of ``text`` with their ends, as an editor counts them: LF alone ends one."""
    return _ROW.findall(text)


def build_index(passages: Iterable[Passage], *, mark: str) -> bytes:
    """The bytes of an index of ``passages``; ``mark`` says what they were made from.

    Raises ``Incompatible`` where SQLite lacks FTS5.
    """
    with closing(sqlite3.connect(":memory:")) as base:
        try:
            base.executescript(_TABLES)
        except sqlite3.OperationalError as error:
            raise Incompatible(
                f"sqlite {sqlite3.sqlite_version}: no full-text search: {error}",
                hint="use a Python whose sqlite3 has FTS5",
            ) from None
        base.execute("INSERT INTO meta VALUES (?, ?)", (VERSION, mark))
        rows = ((item.text, item.path, item.block, item.line) for item in passages)
        base.executemany("INSERT INTO passages VALUES (?, ?, ?, ?)", rows)
        base.execute("INSERT INTO passages (passages) VALUES ('optimize')")
        base.commit()
        return base.serialize()


class PassageIndex:
    """An index that can be asked. Close it when done."""

    def __init__(self, base: sqlite3.Connection) -> None:
        self._base = base

    @classmethod
    def of(cls, data: bytes) -> PassageIndex:
        """The index whose bytes ``build_index`` made."""
        base = sqlite3.connect(":memory:")
        base.deserialize(data)
        return cls(base)

    @classmethod
    def open(cls, path: Path, *, mark: str) -> PassageIndex | None:
        """The index in the file ``path``, read-only; None unless it is whole and of ``mark``."""
        if not path.is_file() or path.is_symlink():
            return None
        name = re.sub(r"[^\w/.-]", lambda found: _percent(found[0]), str(path.absolute()))
        try:
            base = sqlite3.connect(f"file:{name}?mode=ro&immutable=1", uri=True)
        except sqlite3.Error:
            return None
        try:
            found = base.execute("SELECT version, mark FROM meta").fetchall()
            is_whole = base.execute("PRAGMA quick_check").fetchall() == [("ok",)]
        except (sqlite3.Error, UnicodeDecodeError):
            found, is_whole = [], False
        if is_whole and found == [(VERSION, mark)]:
            return cls(base)
        base.close()
        return None

    def search(self, text: str, *, limit: int, block: int | None = None) -> tuple[Hit, ...]:
        """The passages with any word of ``text``, the best first; none for a text without words.

        ``block`` looks in that block only.
        """
        words = list(dict.fromkeys(word.lower() for word in _WORD.findall(text)))[:MAX_WORDS]
        if not words:
            return ()
        rows = self._base.execute(
            "SELECT block, path, line, text, bm25(passages) AS score FROM passages "
            "WHERE passages MATCH ?1 AND (?2 IS NULL OR block = ?2) "
            "ORDER BY score, block, path, line LIMIT ?3",
            (" OR ".join(f'"{word}"' for word in words), block, min(limit, MOST_HITS)),
        )
        return tuple(
            Hit(Passage(int(block), str(path), int(line), str(body)), -float(score))
            for block, path, line, body, score in rows
        )

    def close(self) -> None:
        """Let go of the file."""
        self._base.close()


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogateescape"))
