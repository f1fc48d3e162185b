"""``kvg context create``: cut a corpus into blocks, deposit what is not stored, name them all.

Blocks are computed side by side where cores allow, and logged in their order. Each is durable once
it is logged, so a run that was stopped goes on where it was. The refs move together, in one step,
at the end: readers see the old context or the new one, whole.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from kvg.digest import Digest
from kvg.errors import Conflict, Corrupt, UsageError
from kvg.flow.building import Built, build_from
from kvg.flow.context.abreast import Lanes, lanes_for
from kvg.flow.context.corpus import read_corpus
from kvg.flow.context.cutting import Block, cut_corpus
from kvg.flow.context.stored import (
    block_ref,
    block_refs,
    described,
    find_context,
    lapsed,
    placed,
    placements,
    slice_text,
    source_of,
)
from kvg.flow.deposit import (
    OpenedModel,
    open_model,
    plan_of,
    provenance_of,
    raw_bytes,
    stored_bytes,
)
from kvg.flow.gated import attest_gates, check_policy
from kvg.flow.records.contexts import ContextBlock, ContextMade
from kvg.flow.records.record import Record
from kvg.flow.requests import PAGE_TOKENS, DepositRequest
from kvg.flow.reuse import Plan, Reuse, find_reuse, find_same
from kvg.flow.selfproof import prove_itself
from kvg.flow.settings import attesting_key
from kvg.flow.sources import Source
from kvg.frozen import frozen
from kvg.log.entry import AttestationEntry
from kvg.objects.contract import Contract
from kvg.objects.statement import Provenance, encode_provenance
from kvg.store import RefMove, check_ref_name

if TYPE_CHECKING:
    from kvg.flow.context.stored import StoredContext
    from kvg.flow.settings import Settings
    from kvg.gates import GateOutcome
    from kvg.log.entry import Entry
    from kvg.signing.keys import PrivateKey
    from kvg.store import Pending, Store

ROOM_TOKENS = 512
"""Tokens of the window that a block leaves for a question and its answer."""

MIN_BLOCK_TOKENS = 16

_Made: TypeAlias = "tuple[Built, tuple[GateOutcome, ...]]"


@frozen
class ContextRequest:
    """Make or update the context ``name`` from files and folders.

    ``room`` tokens of the model's window are left free behind each block; ``block_tokens`` bounds a
    block further. ``model`` None is the store's default, ``key`` None the first key.
    """

    name: str
    paths: tuple[Path, ...]
    model: str | None = None
    room: int = ROOM_TOKENS
    block_tokens: int | None = None
    page_tokens: int = PAGE_TOKENS
    key: str | None = None

    def __post_init__(self) -> None:
        check_ref_name(block_ref(self.name, 1))
        if not self.paths:
            raise UsageError(f"{self.name}: no files", hint="kvg context create NAME FOLDER")
        if self.room < 0:
            raise UsageError(f"--room {self.room}: less than 0")
        if self.block_tokens is not None and self.block_tokens < MIN_BLOCK_TOKENS:
            raise UsageError(f"--block-tokens {self.block_tokens}: less than {MIN_BLOCK_TOKENS}")


@dataclass(frozen=True, slots=True)
class _Work:
    """What every block of one run is made with."""

    store: Store
    settings: Settings
    request: ContextRequest
    model: OpenedModel
    before: StoredContext | None

    def deposit(self, block: Block) -> DepositRequest:
        """The block as a deposit of its own would be asked for."""
        return DepositRequest(
            self.request.name,
            model=self.request.model,
            text=block.text,
            page_tokens=self.request.page_tokens,
            key=self.request.key,
        )

    def plan(self, block: Block) -> Plan:
        """The computation that ``block`` is. Raises ``Incompatible`` when it does not fit."""
        ids = tuple(self.model.tokenizer.encode(block.text))
        self.model.session.check_window(len(ids))
        return plan_of(self.model.session, self.model.files, self.deposit(block), ids)

    def provenance(self, block: Block, started: float) -> Provenance:
        """What is signed about ``block``."""
        said = provenance_of(
            self.deposit(block),
            Source("text", ()),
            Contract(),
            self.model.model,
            self.model.files,
            self.model.session,
            None,
            started,
        )
        sources = tuple(source_of(self.request.name, part) for part in block.parts)
        return replace(said, source=sources)


@dataclass(frozen=True, slots=True)
class _Held:
    """A block that is stored, and how many of its tokens were computed for it."""

    block: Block
    digest: Digest
    n_computed: int


def create_context(store: Store, settings: Settings, request: ContextRequest) -> Iterator[Record]:
    """Yield each block as it is stored, then what it all came to.

    Raises ``UsageError``, ``NotFound``, ``Incompatible``, ``NoSpace``, ``Conflict``, ``Untrusted``,
    ``GateFailed`` where the store's policy asks for gates. What was stored before stays stored.
    """
    began = time.perf_counter()
    store.check_own_name(block_ref(request.name, 1))
    files = read_corpus(settings, request.paths)
    check_policy(store, (), what=request.name)
    before = find_context(store, request.name)
    refs = _own_refs(store, request.name, before)
    opened = open_model(store, settings, _first_request(request))
    work = _Work(store, settings, request, opened, before)
    budget = _budget(opened.session.model.window, request)
    blocks = tuple(cut_corpus(files, opened.tokenizer, budget, _standing(work, budget)))
    if settings.tell_dry_run():
        yield from _planned(work, blocks)
        return
    key = attesting_key(settings, store, request.key)
    held: list[_Held] = []
    start = 0
    with store.pending() as pending, settings.report.task("context", len(blocks), "blocks") as task:
        with closing(_hold_all(work, pending, blocks, key, budget)) as stored:
            for number, (item, count) in enumerate(stored, 1):
                held.append(item)
                yield _record(request.name, number, item, start, count)
                start += count
                task.advance(1)
        removed = _name_all(work, pending, held, refs, key)
    yield _made(store, request.name, held, start, removed, time.perf_counter() - began)


def _own_refs(store: Store, name: str, before: StoredContext | None) -> dict[str, Digest]:
    """The refs of the context as it is. Raises ``Conflict`` when another's is in its way."""
    refs = block_refs(store, name)
    own = {block.ref for block in (before.blocks if before else ())}
    for ref, digest in refs.items():
        if ref not in own and not lapsed(store, name, digest):
            raise Conflict(
                f"{ref}: there already, and no block of a context", hint=f"kvg mv {ref} OTHER"
            )
    return refs


def _made(
    store: Store, name: str, held: Sequence[_Held], tokens: int, removed: int, seconds: float
) -> ContextMade:
    manifests = {item.digest: store.manifest(item.digest) for item in held}
    return ContextMade(
        context=name,
        blocks=len(held),
        tokens=tokens,
        files=len({part.path for item in held for part in item.block.parts}),
        computed=sum(item.n_computed > 0 for item in held),
        kept=sum(item.block.kept is not None for item in held),
        removed=removed,
        tokens_computed=sum(item.n_computed for item in held),
        bytes_raw=sum(raw_bytes(manifest) for manifest in manifests.values()),
        bytes_stored=sum(stored_bytes(store, m, digest) for digest, m in manifests.items()),
        seconds=seconds,
    )


def _first_request(request: ContextRequest) -> DepositRequest:
    """What a model is opened for: any deposit of this context."""
    return DepositRequest(
        request.name, model=request.model, text="-", page_tokens=request.page_tokens
    )


def _budget(window: int, request: ContextRequest) -> int:
    """The most tokens of one block."""
    budget = min(window - request.room, request.block_tokens or window)
    if budget < MIN_BLOCK_TOKENS:
        raise UsageError(
            f"--room {request.room}: leaves {max(0, budget)} of the window's {window:,} tokens",
            hint="leave less room",
        )
    return budget


def _standing(work: _Work, budget: int) -> list[tuple[tuple[str, str], ...]]:
    """The (path, text) of the parts of each block from before that this model computed."""
    found = []
    for block in work.before.blocks if work.before else ():
        if block.model != work.model.files.identity.fingerprint or block.tokens > budget:
            continue
        try:
            found.append(
                tuple((part.path, slice_text(work.store, block, part)) for part in block.parts)
            )
        except Corrupt:  # what is lost is cut and deposited anew
            continue
    return found


@dataclass(frozen=True, slots=True)
class _Begun:
    """A block that is stored, or that is being computed."""

    block: Block
    plan: Plan
    started: float
    made: Digest | Future[_Made]

    def may_lend(self, plan: Plan) -> bool:
        """Whether ``plan`` could take a page over from this block once it is stored."""
        page = plan.page_tokens
        return isinstance(self.made, Future) and self.plan.ids[:page] == plan.ids[:page]


def _hold_all(
    work: _Work, pending: Pending, blocks: Sequence[Block], key: PrivateKey, budget: int
) -> Generator[tuple[_Held, int]]:
    """Store every block that is not there, several at a time; each, in order, with its tokens."""
    session = work.model.session
    begun: deque[_Begun] = deque()
    with Lanes(session, lanes_for(work.settings, session, budget, len(blocks))) as lanes:
        for block in blocks:
            plan = work.plan(block)
            while any(item.may_lend(plan) for item in begun):
                yield _hold(work, pending, begun.popleft(), key)
            begun.append(_begin(work, pending, lanes, block, plan))
            while len(begun) >= lanes.depth:
                yield _hold(work, pending, begun.popleft(), key)
        while begun:
            yield _hold(work, pending, begun.popleft(), key)


def _begin(work: _Work, pending: Pending, lanes: Lanes, block: Block, plan: Plan) -> _Begun:
    """Compute ``block`` unless it is stored. Nothing of it is named by the log yet."""
    started = time.time()
    for part in block.parts:
        pending.put(part.text.encode("utf-8"))
    same = find_same(work.store, plan)
    if same is not None:
        pending.add(same)
        return _Begun(block, plan, started, same)
    reuse = find_reuse(work.store, plan, parent=None)
    made = lanes.submit(partial(_make, work, pending, plan, reuse))
    return _Begun(block, plan, started, made)


def _make(work: _Work, pending: Pending, plan: Plan, reuse: Reuse | None) -> _Made:
    built = build_from(work.settings, work.model.session, pending, plan, reuse)
    return built, prove_itself(work.store, work.model.session, built.manifest, plan.ids)


def _hold(work: _Work, pending: Pending, begun: _Begun, key: PrivateKey) -> tuple[_Held, int]:
    """Sign and log a block once it is computed."""
    if not isinstance(begun.made, Future):
        return _Held(begun.block, begun.made, 0), begun.plan.count
    built, outcomes = begun.made.result()
    digest = built.manifest.digest
    envelope = _sign(pending, work.provenance(begun.block, begun.started), digest, key)
    gates = attest_gates(pending, outcomes, digest, key)
    work.store.record(digest, [envelope, *gates])
    return _Held(begun.block, digest, built.n_computed), begun.plan.count


def _sign(pending: Pending, said: Provenance, digest: Digest, key: PrivateKey) -> Digest:
    from kvg.signing.dsse import sign_envelope

    return pending.put(sign_envelope(encode_provenance(digest, said), [key])).digest


def _name_all(
    work: _Work,
    pending: Pending,
    held: Sequence[_Held],
    refs: Mapping[str, Digest],
    key: PrivateKey,
) -> int:
    """Sign the places that are new and move every ref, in one step; how many blocks went."""
    name = work.request.name
    wanted = {block_ref(name, number): item.digest for number, item in enumerate(held, 1)}
    entries = list(_new_places(work, pending, held, key))
    moves = [
        RefMove(ref, wanted.get(ref), refs.get(ref))
        for ref in {**refs, **wanted}
        if refs.get(ref) != wanted.get(ref)
    ]
    if entries or moves:
        work.store.publish([*entries, *moves])
    return sum(ref not in wanted for ref in refs)


def _new_places(
    work: _Work, pending: Pending, held: Sequence[_Held], key: PrivateKey
) -> Iterator[Entry]:
    """What the log does not say yet of where blocks stand in this context."""
    name = work.request.name
    by_digest: dict[Digest, list[Block]] = {}
    for item in held:
        by_digest.setdefault(item.digest, []).append(item.block)
    for digest, blocks in by_digest.items():
        wanted = tuple(placed(name, block.parts) for block in blocks)
        if placements(work.store, name, digest)[-len(wanted) :] == wanted:
            continue
        for block in blocks:
            now = time.time()
            envelope = _sign(pending, work.provenance(block, now), digest, key)
            yield AttestationEntry(int(now), digest, envelope)


def _record(name: str, number: int, held: _Held, start: int, count: int) -> ContextBlock:
    return ContextBlock(
        context=name,
        number=number,
        ref=block_ref(name, number),
        digest=held.digest,
        start=start,
        tokens=count,
        tokens_computed=held.n_computed,
        parts=described(placed(name, held.block.parts)),
    )


def _planned(work: _Work, blocks: Sequence[Block]) -> Iterator[Record]:
    """What there would be to do; nothing is stored."""
    start = 0
    for number, block in enumerate(blocks, 1):
        plan = work.plan(block)
        same = find_same(work.store, plan)
        parts = placed(work.request.name, block.parts)
        yield ContextBlock(
            context=work.request.name,
            number=number,
            ref=block_ref(work.request.name, number),
            digest=same,
            start=start,
            tokens=plan.count,
            tokens_computed=0 if same else plan.count,
            parts=described(parts),
        )
        start += plan.count
