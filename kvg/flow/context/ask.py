"""``kvg context ask``: search, graft the one best block, answer, and cite where the words stand."""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from kvg.errors import NotFound
from kvg.flow.context.ahead import read_ahead
from kvg.flow.context.search import RANKED, opened_index, rank_blocks
from kvg.flow.context.stored import read_context, slice_text
from kvg.flow.freshness import check_fresh
from kvg.flow.records.contexts import Candidate, ContextAnswer
from kvg.flow.registered import (
    check_tokenizer,
    check_torch,
    grafted_slot,
    identified,
    model_of,
    open_engine,
    tokenizer_of,
)
from kvg.flow.requests import ContextAskRequest

if TYPE_CHECKING:
    from kvg.flow.context.stored import StoredBlock
    from kvg.flow.registered import RegisteredModel
    from kvg.flow.settings import Settings
    from kvg.model.session import Session
    from kvg.model.text import Message, Tokenizer
    from kvg.objects.manifest import Engine
    from kvg.objects.verified import Verified
    from kvg.store import Store

CITATIONS = 3
"""Passages of the block that are cited, found by the question alone: words of a wrong answer lead
away."""
_LONG_WORD = re.compile(r"\w{4,}")


def ask_context(store: Store, settings: Settings, request: ContextAskRequest) -> ContextAnswer:
    """The answer of one block, grafted and proved by its witness.

    Of several blocks the answer is chosen by counting, in this order: it came to an end by itself,
    more of its words stand in its block, more blocks answer the same, the search ranks it higher.
    Raises ``NotFound`` when no block has a word of the question, and as ``graft`` does.
    """
    found = read_context(store, request.name, settings.report)
    with opened_index(store, found) as index:
        hits = index.search(request.question, limit=RANKED)
        ranked = [found.block(n) for n in rank_blocks(hits)][: request.blocks]
        if not ranked:
            raise NotFound(
                f"{request.name}: no block has any of these words",
                hint=f"kvg context show {request.name}",
            )
        candidates = _candidates(store, settings, request, ranked)
        best = min(candidates, key=_order)
        number = ranked[best.rank - 1].number
        cited = index.search(request.question, limit=CITATIONS, block=number)
        return ContextAnswer(
            context=request.name,
            ref=best.ref,
            digest=best.digest,
            question=request.question,
            text=best.text,
            citations=tuple(f"{hit.passage.path}:{hit.line}" for hit in cited),
            passages=tuple(f"{hit.passage.path}:{hit.passage.line}" for hit in cited),
            exact=True,
            saved_tokens=best.saved_tokens,
            first_token_ms=best.first_token_ms,
            candidates=candidates,
        )


def _order(item: Candidate) -> tuple[bool, int, int, int]:
    return not item.ended, -item.supported, -item.agreeing, item.rank


@dataclass(frozen=True, slots=True)
class _Opened:
    """A model as it was opened for one engine."""

    model: RegisteredModel
    engine: Engine
    session: Session
    tokenizer: Tokenizer


def _candidates(
    store: Store, settings: Settings, request: ContextAskRequest, ranked: list[StoredBlock]
) -> tuple[Candidate, ...]:
    """What each block answers, one after the other: never more than one is in memory."""
    from kvg.verify import verify_artifact

    check_torch()
    opened: _Opened | None = None
    found: list[Candidate] = []
    for rank, block in enumerate(ranked, 1):
        read_ahead(store, ranked[rank : rank + 1])
        began = time.perf_counter()
        verified = verify_artifact(store, block.digest, require=request.require, ref=block.ref)
        verify_ms = (time.perf_counter() - began) * 1e3
        check_fresh(store, settings.cwd, verified.provenance, what=block.ref)
        opened = _open(store, settings, verified, opened)
        found.append(_answer(store, settings, request, opened, verified, block, rank, verify_ms))
    same = Counter(item.text.strip() for item in found)
    return tuple(replace(item, agreeing=same[item.text.strip()]) for item in found)


def _open(store: Store, settings: Settings, verified: Verified, before: _Opened | None) -> _Opened:
    """The model that computed ``verified``; ``before`` if it is that one."""
    model, engine = model_of(store, verified.manifest), verified.manifest.engine
    if before is not None and (before.model, before.engine) == (model, engine):
        return before
    files = identified(store, settings, model)
    check_tokenizer(verified, files, model)
    session = open_engine(settings, model, files, engine)
    return _Opened(model, engine, session, tokenizer_of(settings, model, files))


def _answer(
    store: Store,
    settings: Settings,
    request: ContextAskRequest,
    opened: _Opened,
    verified: Verified,
    block: StoredBlock,
    rank: int,
    verify_ms: float,
) -> Candidate:
    from kvg.flow.asking import ask_messages

    session = opened.session
    began = time.perf_counter()
    asked = ask_messages(
        session,
        opened.tokenizer,
        messages_of(request.question),
        exemplar=verified,
        place=partial(grafted_slot, settings, session),
        n_more=request.max_tokens,
    )
    first_token_ms = verify_ms + (time.perf_counter() - began) * 1e3
    text, ids = asked.answer(request.max_tokens, stop=request.stop)
    return Candidate(
        ref=block.ref,
        digest=block.digest,
        text=text,
        ended=bool(ids) and ids[-1] in session.model.eos_ids,
        supported=_supported(store, block, text),
        agreeing=1,
        rank=rank,
        saved_tokens=asked.slot.restored - 1,
        first_token_ms=first_token_ms,
    )


def messages_of(question: str) -> tuple[Message, ...]:
    """How a model is asked: one turn of the chat template, which goes on after the block's text."""
    return ({"role": "user", "content": question},)


def _supported(store: Store, block: StoredBlock, answer: str) -> int:
    """How many thousandths of the longer words of ``answer`` stand in the block."""
    words = set(_LONG_WORD.findall(answer.lower()))
    if not words:
        return 0
    held: set[str] = set()
    for part in block.parts:
        held |= words.intersection(_LONG_WORD.findall(slice_text(store, block, part).lower()))
    return 1000 * len(held) // len(words)
