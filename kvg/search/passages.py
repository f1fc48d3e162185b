"""Passages of text in SQLite's FTS5, ranked by BM25. An index is a cache: bytes that are made from
the text again whenever they are missing, damaged or of another text.

Source: https://www.sqlite.org/fts5.html
"""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from kvg.errors import Incompatible
from kvg.frozen import frozen
from kvg.search.words import holds, stem, telling_words

if TYPE_CHECKING:
    from pathlib import Path

VERSION = 2
"""Of the tables; another one makes an index that is built anew."""

PASSAGE_CHARS = 800
"""A passage ends with the paragraph in which it gets this long, or with a line at twice that."""

LEAST_CHARS = 200
"""It ends before a section that begins, too, if it is this long."""

SECTION_START = re.compile(r"(#{1,6} |def |class |async def |@|\.\. |={3,}|-{3,})")
"""After a blank line this begins a section."""

AROUND = 0.5
"""What the lines beside it add to a line: a sentence goes on over line ends."""

MOST_HITS = 1 << 31
"""More than any index has; SQLite's integers end somewhere."""
_ROW = re.compile(r"[^\n]*\n|[^\n]+")
_TABLES = """
    CREATE TABLE meta (version INTEGER, mark TEXT);
    CREATE VIRTUAL TABLE passages USING fts5 (
        text, path, block UNINDEXED, line UNINDEXED, tokenize = "unicode61"
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
    """A passage that was found; the higher ``score``, the better. Equal ones stand in order.

    ``line`` is the one of its lines, as the file counts them, that has most of the words.
    """

    passage: Passage
    score: float
    line: int


@frozen
class _Term:
    """A word as it is looked for: its MATCH expression, what words begin with that are it, and how
    much it tells, by how few passages have it."""

    match: str
    beginning: str
    weight: float


def cut_passages(block: int, path: str, line: int, text: str) -> Iterator[Passage]:
    """``text``, which begins at ``line`` of ``path``, in passages of whole lines."""
    held: list[str] = []
    size, first = 0, line
    for number, row in enumerate(rows_of(text), line):
        is_section = held and not held[-1].strip() and SECTION_START.match(row)
        if is_section and size >= LEAST_CHARS:
            yield from _passage(block, path, first, held)
            held, size, first = [], 0, number
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
        """The passages with any telling word of ``text``, the best first; none without a word.

        A word that no passage has is looked for without its ending, as the beginning of words.
        ``block`` looks in that block only.
        """
        terms = self._terms(text)
        if not terms:
            return ()
        rows = self._base.execute(
            "SELECT block, path, line, text, bm25(passages) AS score FROM passages "
            "WHERE passages MATCH ?1 AND (?2 IS NULL OR block = ?2) "
            "ORDER BY score, block, path, line LIMIT ?3",
            (" OR ".join(term.match for term in terms), block, min(limit, MOST_HITS)),
        )
        return tuple(
            Hit(
                Passage(int(block), str(path), int(line), str(body)),
                -float(score),
                int(line) + _best_row(str(body), terms),
            )
            for block, path, line, body, score in rows
        )

    def _terms(self, text: str) -> list[_Term]:
        """The words of ``text`` that some passage has, in this form or another."""
        (total,) = self._base.execute("SELECT count(*) FROM passages").fetchone()
        found = []
        for word in telling_words(text):
            for match in (f'"{word}"', f'"{stem(word)}"*'):
                (count,) = self._base.execute(
                    "SELECT count(*) FROM passages WHERE passages MATCH ?", (match,)
                ).fetchone()
                if count:
                    found.append(_Term(match, stem(word), math.log1p(total / count)))
                    break
        return found

    def close(self) -> None:
        """Let go of the file."""
        self._base.close()


def _best_row(text: str, terms: Iterable[_Term]) -> int:
    """The number, from 0, of the row of ``text`` that has most of what ``terms`` tell."""
    rows = rows_of(text)
    own = [sum(term.weight for term in terms if holds(row, term.beginning)) for row in rows]
    ends = [0.0, *own, 0.0]
    whole = [own[n] + AROUND * (ends[n] + ends[n + 2]) for n in range(len(rows))]
    return max(range(len(rows)), key=lambda n: (whole[n], -n))


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogateescape"))
