"""``kvg context search``: passages by their words. What decides is the text in the store; the index
beside it is a cache, made anew whenever it is missing, damaged or of other blocks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kvg import durable
from kvg.digest import hex_of, sha256
from kvg.errors import KvgError, UsageError
from kvg.flow.context.stored import StoredContext, read_context, slice_text
from kvg.flow.records.contexts import ContextPassage
from kvg.search import Hit, Passage, PassageIndex, build_index, cut_passages
from kvg.store.layout import SEARCH

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.flow.settings import Settings
    from kvg.store import Store

LIMIT = 5
RANKED = 64
"""Passages that blocks are ranked by."""


def search_context(
    store: Store, settings: Settings, name: str, query: str, *, limit: int = LIMIT
) -> Iterator[ContextPassage]:
    """The passages that have words of ``query``, the best first.

    Raises ``NotFound`` for no such context, ``UsageError``, ``Untrusted``, ``Corrupt``.
    """
    if not query.strip():
        raise UsageError(f"{name}: nothing to search for", hint="kvg context search NAME WORDS")
    found = read_context(store, name, settings.report)
    with opened_index(store, found) as index:
        hits = index.search(query, limit=limit)
    for hit in hits:
        passage = hit.passage
        yield ContextPassage(
            context=name,
            ref=found.block(passage.block).ref,
            path=passage.path,
            line=passage.line,
            best_line=hit.line,
            score=hit.score,
            text=passage.text,
        )


def rank_blocks(hits: tuple[Hit, ...]) -> tuple[int, ...]:
    """The numbers of the blocks that ``hits`` lie in, each where its best one stands.

    Weaker ones of the same block do not count: added up they put long blocks first, and the right
    block last more often (``bench/asking.py``).
    """
    return tuple(dict.fromkeys(hit.passage.block for hit in hits))


@contextmanager
def opened_index(store: Store, found: StoredContext) -> Iterator[PassageIndex]:
    """The index of the context as it is now."""
    path = _path(store, found.name)
    index = PassageIndex.open(path, mark=found.mark)
    if index is None:
        data = build_index(_passages(store, found), mark=found.mark)
        try:
            durable.replace(path, [data], staging=store.staging)
        except KvgError:  # a store that is only read, or full: this run has its index
            pass
        index = PassageIndex.of(data)
    try:
        yield index
    finally:
        index.close()


def _path(store: Store, name: str) -> Path:
    return store.root / SEARCH / f"{hex_of(sha256(name.encode()))[:32]}.sqlite"


def _passages(store: Store, found: StoredContext) -> Iterator[Passage]:
    for block in found.blocks:
        for part in block.parts:
            text = slice_text(store, block, part)
            yield from cut_passages(block.number, part.path, part.line, text)
