"""Cutting a corpus into blocks that fit: at files, sections, paragraphs, lines, in this order.

A block that stands from before is kept where its text still stands; only what lies between is cut.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Protocol

from kvg.flow.context.corpus import File
from kvg.flow.sources import joined
from kvg.frozen import frozen
from kvg.search import SECTION_START, rows_of

SLACK = 0.1
"""The last part of a block in which a better boundary is preferred to a fuller block."""

_LINE, _PARAGRAPH, _SECTION, _FILE = range(4)

Place = tuple[int, int]
"""A position in a corpus: the number of a file, and a character in it."""


class Measure(Protocol):
    """How texts become tokens."""

    def counts(self, texts: Sequence[str]) -> Sequence[int]:
        """How many ids each text has, alone."""

    def prefix(self, text: str, n_tokens: int) -> int:
        """How many characters of ``text`` its first ``n_tokens`` ids are, at most; at least 1."""


@frozen
class Part:
    """A stretch of one file: ``line`` is its first line, from 1."""

    path: str
    line: int
    text: str

    @property
    def n_lines(self) -> int:
        """How many lines it touches."""
        return self.text.count("\n") + (not self.text.endswith("\n"))


@frozen
class Block:
    """What one artifact is to hold. ``kept`` is the number of the block that it was before."""

    parts: tuple[Part, ...]
    kept: int | None = None

    @property
    def text(self) -> str:
        """The text that is deposited: parts joined as the files of any deposit are."""
        return joined(part.text for part in self.parts)


def cut_corpus(
    files: Sequence[File],
    measure: Measure,
    budget: int,
    before: Sequence[Sequence[tuple[str, str]]] = (),
) -> Iterator[Block]:
    """Blocks of at most ``budget`` tokens that hold all of ``files``, in order.

    ``before``: the (path, text) of each part of blocks that stand, which are kept where they still
    fit into the corpus.
    """
    place: Place = (0, 0)
    for start, end, number in _standing(files, before):
        if start < place:
            continue
        yield from _cut(files, measure, budget, place, start)
        yield Block(tuple(_parts(files, start, end)), number)
        place = end
    yield from _cut(files, measure, budget, place, (len(files), 0))


def _standing(
    files: Sequence[File], before: Sequence[Sequence[tuple[str, str]]]
) -> list[tuple[Place, Place, int]]:
    """Where each block from before stands in ``files``, if it does, by its start."""
    numbers = {file.path: number for number, file in enumerate(files)}
    found = []
    expected: Place = (0, 0)
    for number, parts in enumerate(before):
        path, text = parts[0]
        index = numbers.get(path)
        if index is None:
            continue
        for at in _starts(files[index].text, text, len(parts), expected, index):
            end = _end_of(files, index, at, parts)
            if end is not None:
                found.append(((index, at), end, number))
                expected = end
                break
    return sorted(found)


def _starts(whole: str, text: str, n_parts: int, expected: Place, index: int) -> Iterator[int]:
    """Where in a file ``text`` may stand: right after the block before it goes first."""
    after = expected[1] if expected[0] == index else 0
    if n_parts > 1:
        yield max(0, len(whole) - len(text))
        return
    if whole.startswith(text, after):
        yield after
    at = whole.find(text, after)
    if at >= 0:
        yield at


def _end_of(
    files: Sequence[File], index: int, at: int, parts: Sequence[tuple[str, str]]
) -> Place | None:
    """Where ``parts`` end that begin there; None unless the corpus goes on as they do."""
    for number, (path, text) in enumerate(parts):
        if index >= len(files) or files[index].path != path:
            return None
        if not files[index].text.startswith(text, at):
            return None
        at += len(text)
        if at == len(files[index].text):
            index, at = index + 1, 0
        elif number + 1 < len(parts):
            return None
    return index, at


def _parts(files: Sequence[File], start: Place, end: Place) -> Iterator[Part]:
    """The stretches of files between two places."""
    for index in range(start[0], min(end[0] + 1, len(files))):
        text = files[index].text
        first = start[1] if index == start[0] else 0
        last = end[1] if index == end[0] else len(text)
        if first < last:
            yield Part(files[index].path, text.count("\n", 0, first) + 1, text[first:last])


@frozen
class _Cell:
    """The smallest piece to cut at: where it ends, how good a boundary that is, its tokens."""

    end: Place
    rank: int
    n_tokens: int


def _cut(
    files: Sequence[File], measure: Measure, budget: int, start: Place, end: Place
) -> Iterator[Block]:
    """Blocks for what lies between two places."""
    if start >= end:
        return
    cells = list(_cells(files, measure, budget, start, end))
    sums = list(accumulate(cell.n_tokens for cell in cells))
    first, place = 0, start
    while first < len(cells):
        taken = sums[first - 1] if first else 0
        room = budget
        while True:
            stop = _best(cells, sums, first, taken, room)
            parts = tuple(_parts(files, place, cells[stop].end))
            over = measure.counts([Block(parts).text])[0] - budget
            if over <= 0 or stop == first:
                break
            room = min(room - over, sums[stop] - taken - 1)
        yield Block(parts)
        first, place = stop + 1, cells[stop].end


def _best(cells: Sequence[_Cell], sums: Sequence[int], first: int, taken: int, room: int) -> int:
    """The cell to end with: the best boundary in the last part of the room, else the last."""
    last = max(first, bisect_right(sums, taken + room, lo=first) - 1)
    if last == len(cells) - 1:
        return last
    best, least = last, taken + room * (1 - SLACK)
    for index in range(last, first - 1, -1):
        if sums[index] < least:
            break
        if cells[index].rank > cells[best].rank:
            best = index
    return best


def _cells(
    files: Sequence[File], measure: Measure, budget: int, start: Place, end: Place
) -> Iterator[_Cell]:
    """Every line between two places; one that alone is too long in pieces of whole tokens."""
    for index in range(start[0], min(end[0] + 1, len(files))):
        text = files[index].text
        first = start[1] if index == start[0] else 0
        last = end[1] if index == end[0] else len(text)
        rows = rows_of(text[first:last]) if first < last else []
        counts = measure.counts(rows) if rows else ()
        at = first
        for number, (row, n_tokens) in enumerate(zip(rows, counts, strict=True)):
            following = rows[number + 1] if number + 1 < len(rows) else None
            for piece, n_piece in _pieces(measure, row, n_tokens, budget):
                at += len(piece)
                whole = at == len(text)
                place = (index + 1, 0) if whole else (index, at)
                yield _Cell(place, _rank(row, following, whole=whole), n_piece)


def _pieces(measure: Measure, row: str, n_tokens: int, budget: int) -> Iterator[tuple[str, int]]:
    while n_tokens > budget:
        at = measure.prefix(row, budget)
        piece, row = row[:at], row[at:]
        yield piece, measure.counts([piece])[0]
        n_tokens = measure.counts([row])[0] if row else 0
    if row:
        yield row, n_tokens


def _rank(row: str, following: str | None, *, whole: bool) -> int:
    """How good it is to end with ``row``, before ``following``."""
    if whole:
        return _FILE
    if row.strip() or following is None:
        return _LINE
    return _SECTION if SECTION_START.match(following) else _PARAGRAPH
