"""``kvg bench context``: the window moved by chance over a stored context, time against depth."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean, median
from typing import TYPE_CHECKING

from kvg.flow.bench.setup import check_least, setup_of
from kvg.flow.context.stored import read_context
from kvg.flow.records.bench import ContextAccess, ContextBenchSummary
from kvg.flow.registered import check_torch, identified, model_of, open_engine

if TYPE_CHECKING:
    from kvg.digest import Digest
    from kvg.flow.context.stored import StoredContext
    from kvg.flow.records.record import Record
    from kvg.flow.settings import Settings
    from kvg.model.session import Session, Slot
    from kvg.store import Store

ACCESSES = 200
REPLAY_EACH = 10
SEED = 88
NORMAL_95 = 1.959964


@dataclass(frozen=True, slots=True)
class ContextBenchRequest:
    """Move the window of context ``name`` to ``accesses`` tokens drawn by chance."""

    name: str
    accesses: int = ACCESSES

    def __post_init__(self) -> None:
        check_least("--accesses", self.accesses, 3)


def bench_context(
    store: Store, settings: Settings, request: ContextBenchRequest
) -> Iterator[Record]:
    """Yield the setup, each access, and a summary. One slot holds the window throughout.

    The first place is accessed a few times before, which is not counted: a session that decodes
    lays the model's weights out anew, once, and that is no memory of blocks.

    Raises ``NotFound``, ``Corrupt``, ``Incompatible``; a witness that is not met is raised.
    """
    check_torch()
    from kvg.model.packing import SHORT_PASSES

    found = read_context(store, request.name)
    manifest = store.manifest(found.blocks[0].digest)
    model = model_of(store, manifest)
    files = identified(store, settings, model)
    session = open_engine(settings, model, files, manifest.engine)
    yield setup_of("context", model, session)
    slot, random = session.slot(), Random(SEED)
    offsets = [random.randrange(found.tokens) for _ in range(request.accesses)]
    for _ in range(SHORT_PASSES + 1):  # what a session that decodes takes once, it has then
        _access(store, session, slot, found, 0, offsets[0])
    accesses = []
    with settings.report.task("accesses", len(offsets), "accesses") as task:
        for number, offset in enumerate(offsets):
            accesses.append(_access(store, session, slot, found, number, offset))
            task.advance(1)
    replayed = []
    for access in accesses:
        if access.number % REPLAY_EACH == 0:
            access = replace(access, replayed=_fresh(store, session, found, access))
            replayed.append(access)
        yield access
    yield _summary(found, session.model.window, accesses, replayed)


def _access(
    store: Store, session: Session, slot: Slot, found: StoredContext, number: int, offset: int
) -> ContextAccess:
    from kvg.model.dtypes import tensor_digest
    from kvg.model.session import lowest_maximum
    from kvg.verify import verify_artifact

    began = time.perf_counter()
    block = found.at_token(offset)
    verified = verify_artifact(store, block.digest, ref=block.ref)
    session.check_engine(verified)
    slot.truncate(0)
    n_bytes = session.restore(slot, verified)
    proof, logits = session.resume(slot, verified.ids[-1], ())
    session.check_witness(verified, verified.manifest.witnesses[-1], proof)
    lowest_maximum(logits)
    taken = time.perf_counter() - began
    return ContextAccess(
        number=number,
        offset=offset,
        block=block.number,
        first_token_ms=taken * 1e3,
        restored_bytes=n_bytes,
        memory_bytes=_memory(),
        logits=tensor_digest(logits),
        replayed=None,
    )


def _fresh(store: Store, session: Session, found: StoredContext, access: ContextAccess) -> Digest:
    """The digest of the logits of a fresh computation of the block."""
    from kvg.model.dtypes import tensor_digest

    block = found.block(access.block)
    ids = tuple(store.ids(store.manifest(block.digest), what=block.ref))
    last = len(ids) - 1
    return tensor_digest(session.prefill(session.slot(), ids, [last]).logits[last])


def _memory() -> int:
    """Bytes of memory that this process holds now; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _summary(
    found: StoredContext,
    window: int,
    accesses: Sequence[ContextAccess],
    replayed: Sequence[ContextAccess],
) -> ContextBenchSummary:
    times = sorted(access.first_token_ms for access in accesses)
    slope, error = slope_of(
        [access.offset / 1e6 for access in accesses],
        [access.first_token_ms for access in accesses],
    )
    memory = [access.memory_bytes for access in accesses]
    return ContextBenchSummary(
        context=found.name,
        blocks=len(found.blocks),
        tokens=found.tokens,
        windows=found.tokens / window,
        accesses=len(accesses),
        median_ms=median(times),
        p99_ms=times[min(len(times) - 1, len(times) * 99 // 100)],
        slope_ms=slope,
        slope_low=slope - NORMAL_95 * error,
        slope_high=slope + NORMAL_95 * error,
        growth_bytes=max(memory) - memory[0],
        replayed=len(replayed),
        equal=sum(access.logits == access.replayed for access in replayed),
    )


def slope_of(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float]:
    """The slope of the least-squares line through the points, and its standard error."""
    x_mean, y_mean = fmean(xs), fmean(ys)
    spread = sum((x - x_mean) ** 2 for x in xs)
    if spread == 0 or len(xs) < 3:
        return 0.0, 0.0
    slope = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True)) / spread
    rest = sum((y - y_mean - slope * (x - x_mean)) ** 2 for x, y in zip(xs, ys, strict=True))
    return slope, float((rest / (len(xs) - 2) / spread) ** 0.5)
