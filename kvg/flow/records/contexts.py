"""Records of contexts: a corpus in blocks, places in it, and what was found there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from kvg.digest import Digest
from kvg.flow.records.record import Record
from kvg.frozen import frozen


@frozen
class ContextEntry(Record):
    """One context as it is stored. ``tokens`` are those of all blocks, ``largest`` of one; ``gone``
    is how many blocks are missing before its last, forgotten or removed."""

    type: ClassVar[str] = "context"
    context: str
    blocks: int
    tokens: int
    largest: int
    files: int
    model: Digest
    gone: int


@frozen
class ContextBlock(Record):
    """One block: an artifact under ``ref`` that begins at token ``start`` of the context.

    ``parts`` say what it holds: ``path``, the first ``line`` from 1, and how many ``lines``.
    ``tokens_computed`` is None where the block was only looked up. ``digest`` is None in a dry run
    for what is not stored.
    """

    type: ClassVar[str] = "context-block"
    context: str
    number: int
    ref: str
    digest: Digest | None
    start: int
    tokens: int
    tokens_computed: int | None
    parts: tuple[Mapping[str, object], ...]


@frozen
class ContextMade(Record):
    """What ``context create`` came to. ``kept`` blocks stood already, as they are."""

    type: ClassVar[str] = "context-made"
    context: str
    blocks: int
    tokens: int
    files: int
    computed: int
    kept: int
    removed: int
    tokens_computed: int
    bytes_raw: int
    bytes_stored: int
    seconds: float


@frozen
class ContextPlace(Record):
    """The block that holds a place. ``offset`` is the token that was asked for, or None; ``path``
    and ``line`` likewise. The block is tokens [``start``, ``end``) of the context."""

    type: ClassVar[str] = "context-place"
    context: str
    number: int
    ref: str
    digest: Digest
    start: int
    end: int
    offset: int | None
    path: str | None
    line: int | None
    parts: tuple[Mapping[str, object], ...]


@frozen
class ContextPassage(Record):
    """A passage that has words of the query, the best first; ``score`` is BM25's.

    It begins at ``line`` of ``path``; ``best_line`` is the one that has most of the words.
    """

    type: ClassVar[str] = "context-passage"
    context: str
    ref: str
    path: str
    line: int
    best_line: int
    score: float
    text: str


@frozen
class Candidate:
    """What one block's answer is measured by, in this order.

    ``ended``: the model came to an end by itself. ``supported``: the share, in thousandths, of the
    answer's words of four letters and more that stand in the block. ``agreeing``: how many blocks
    gave the same answer. ``rank``: the place in the search, from 1.
    """

    ref: str
    digest: Digest
    text: str
    ended: bool
    supported: int
    agreeing: int
    rank: int
    saved_tokens: int
    first_token_ms: float


@frozen
class ContextAnswer(Record):
    """An answer from the one block that was chosen, and where in it the words are found.

    ``citations`` are ``path:line`` of the lines that have most of them, ``passages`` of where the
    passages begin that those stand in.
    """

    type: ClassVar[str] = "context-answer"
    context: str
    ref: str
    digest: Digest
    question: str
    text: str
    citations: tuple[str, ...]
    passages: tuple[str, ...]
    exact: bool
    saved_tokens: int
    first_token_ms: float
    candidates: tuple[Candidate, ...]
