"""Building an artifact: prefill what is not stored, or take a slot as it is; pages, manifest."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvg.buffers import Buffers
from kvg.crew import Crew
from kvg.digest import Digest, blake3_bytes, sha256
from kvg.flow.reuse import Plan, Reuse, find_reuse
from kvg.objects.manifest import (
    Group,
    Layout,
    Manifest,
    Page,
    Tokens,
    Witness,
    encode_manifest,
)
from kvg.objects.page import DTYPE_SIZES, data_start
from kvg.objects.tokens import encode_ids
from kvg.parallel import writers

if TYPE_CHECKING:
    from kvg.flow.settings import Settings
    from kvg.model.session import Session, Slot
    from kvg.store import Pending, Store


@dataclass(frozen=True, slots=True)
class Built:
    """An artifact that was computed and stored, not yet named by the log."""

    manifest: Manifest
    n_computed: int
    prefill_ms: float


def build(
    store: Store,
    settings: Settings,
    session: Session,
    pending: Pending,
    plan: Plan,
    parent: Digest | None,
) -> Built:
    """Compute what is not stored yet; put tokens, pages and manifest, in this order."""
    return build_from(settings, session, pending, plan, find_reuse(store, plan, parent=parent))


def build_from(
    settings: Settings, session: Session, pending: Pending, plan: Plan, reuse: Reuse | None
) -> Built:
    """As ``build``, with what is to be reused found before: the store's index is not looked at."""
    slot = session.slot()
    began = time.perf_counter()
    first = _restore(session, slot, reuse) if reuse else 0
    witnesses = _prefill(session, slot, plan, first, reuse)
    prefill_ms = (time.perf_counter() - began) * 1e3
    return _stored(settings, pending, slot, plan, reuse, witnesses, plan.count - first, prefill_ms)


def build_slot(
    settings: Settings,
    pending: Pending,
    session: Session,
    slot: Slot,
    plan: Plan,
    computed: int,
    reuse: Reuse | None = None,
) -> Built:
    """Store what ``slot``, which holds the ids of ``plan`` whole, has become token by token.

    ``computed`` is how many of them were computed in it. The last ones before a cut and at the end
    are run again for their logits; pages that ``reuse`` has are taken over.
    """
    from kvg.model.session import witness_of

    began = time.perf_counter()
    witnesses = tuple(
        witness_of(at, session.logits_at(slot, at, plan.ids[at]), session.model.dtype)
        for at in (end - 1 for end in (*plan.cuts, plan.count))
    )
    prefill_ms = (time.perf_counter() - began) * 1e3
    return _stored(settings, pending, slot, plan, reuse, witnesses, computed, prefill_ms)


def _stored(
    settings: Settings,
    pending: Pending,
    slot: Slot,
    plan: Plan,
    reuse: Reuse | None,
    witnesses: tuple[Witness, ...],
    computed: int,
    prefill_ms: float,
) -> Built:
    pages = _put_pages(settings, pending, slot, plan, reuse)
    tokens = encode_ids(plan.ids)
    pending.put(tokens)
    manifest = Manifest(
        model=plan.model,
        engine=plan.engine,
        tokens=Tokens(sha256(tokens), plan.count),
        layout=Layout(plan.page_tokens, plan.groups),
        pages=pages,
        witnesses=witnesses,
    )
    pending.put(encode_manifest(manifest))
    return Built(manifest, computed, prefill_ms)


def _restore(session: Session, slot: Slot, reuse: Reuse) -> int:
    """Put back what is reused. A whole artifact proves itself by its witness first."""
    manifest = reuse.verified.manifest
    session.restore(slot, reuse.verified, cut=reuse.n_tokens)
    if reuse.n_tokens == manifest.count:
        logits, _ = session.resume(slot, reuse.verified.ids[-1], ())
        session.check_witness(reuse.verified, manifest.witnesses[-1], logits)
    return reuse.n_tokens


def _prefill(
    session: Session, slot: Slot, plan: Plan, first: int, reuse: Reuse | None
) -> tuple[Witness, ...]:
    from kvg.model.session import witness_of

    wanted = [cut - 1 for cut in (*plan.cuts, plan.count) if cut > first]
    done = session.prefill(slot, plan.ids[first:], wanted) if first < plan.count else None
    computed = (
        [witness_of(position, done.logits[position], session.model.dtype) for position in wanted]
        if done
        else []
    )
    return (*(reuse.witnesses if reuse else ()), *computed)


def _put_pages(
    settings: Settings, pending: Pending, slot: Slot, plan: Plan, reuse: Reuse | None
) -> tuple[Page, ...]:
    """Store every page of ``plan``; those taken over are kept, not computed again."""
    taken = {(page.group, page.start): page for page in (reuse.pages if reuse else ())}
    spans = [(group, *span) for group in plan.groups for span in plan.spans(group)]
    own = Buffers()

    def put(item: tuple[Group, int, int]) -> Page:
        group, start, end = item
        page = taken.get((group.name, start))
        if page is not None and pending.keep(page.digest):
            return page
        return _put_page(pending, slot, group, start, end, own)

    total = plan.count * len(plan.groups)
    pages: list[Page] = []
    with (
        settings.report.task("store pages", total, "tokens") as task,
        Crew(writers(settings.jobs)) as pool,
    ):
        for page in pool.map(put, spans):
            pages.append(page)
            task.advance(page.n_tokens)
    return tuple(pages)


def _put_page(
    pending: Pending, slot: Slot, group: Group, start: int, end: int, own: Buffers
) -> Page:
    from kvg.model.state import capture_page

    what = f"{group.name} [{start}, {end})"
    raw = capture_page(slot.state, group, start, end, what=what, buffers=own)
    digest, blake3 = sha256(raw), blake3_bytes(raw)
    pending.put(
        raw,
        digest=digest,
        data_start=data_start(group, end - start),
        element=DTYPE_SIZES[group.dtype],
        blake3=blake3,
    )
    return Page(group.name, start, end, digest, blake3.hex(), len(raw))
