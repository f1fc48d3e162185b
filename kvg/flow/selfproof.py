"""What every deposit proves of itself before it is signed, from the bytes as they lie in the store:
its values are finite, its pages come back byte for byte, its witness comes out again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvg.buffers import Buffers
from kvg.digest import blake3_hex
from kvg.errors import Corrupt
from kvg.gates.outcome import GateOutcome, outcome_of
from kvg.objects.page import check_page
from kvg.objects.verified import give_checked
from kvg.parallel import in_order
from kvg.verify.judgement import FINITE, ROUND_TRIP, WITNESS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvg.canon import Json
    from kvg.model.session import Session, Slot
    from kvg.objects.manifest import Group, Manifest, Page
    from kvg.store import Store


def prove_itself(
    store: Store, session: Session, manifest: Manifest, ids: Sequence[int], *, jobs: int = 1
) -> tuple[GateOutcome, ...]:
    """The outcomes of finite, round-trip and witness, all of them passed.

    Every page is read back from the store into a slot of its own, ``jobs`` at a time. Raises
    ``GateFailed``.
    """
    slot = session.slot()
    slot.state.reserve(manifest.count)
    slot.state.expect(manifest.count)
    unlike: list[str] = []
    infinite: list[str] = []
    own = Buffers()

    def prove(page: Page) -> None:
        _prove_page(store, slot, manifest, own, page, unlike, infinite)

    for _ in in_order(prove, manifest.pages, threads=min(jobs, len(manifest.pages))):
        pass
    pages = ((manifest.group(page.group), page.start, page.end) for page in manifest.pages)
    slot.state.fill(manifest.count, pages)
    read = {"pages": len(manifest.pages), "bytes": sum(page.size for page in manifest.pages)}
    outcomes = (
        _outcome(FINITE, infinite, {**read}),
        _outcome(ROUND_TRIP, unlike, {**read}),
        _witness(session, slot, manifest, ids),
    )
    for outcome in outcomes:
        outcome.check()
    return outcomes


def _prove_page(
    store: Store,
    slot: Slot,
    manifest: Manifest,
    own: Buffers,
    page: Page,
    unlike: list[str],
    infinite: list[str],
) -> None:
    """Put a page into ``slot`` as a graft does, and take it from there again as a deposit does:
    finite values, and the very bytes that the manifest names."""
    from kvg.model.state import capture_page

    name, group = f"page {page.group} [{page.start}, {page.end})", manifest.group(page.group)
    try:
        _put_back(store, slot, group, page, own, name)
    except Corrupt as error:
        unlike.append(error.message)
        return
    try:
        again = capture_page(slot.state, group, page.start, page.end, what=name, buffers=own)
    except Corrupt as error:
        infinite.append(error.message)
        return
    if blake3_hex(again) != page.blake3:
        unlike.append(f"{name}: other bytes after it was restored")


def _put_back(store: Store, slot: Slot, group: Group, page: Page, own: Buffers, name: str) -> None:
    """Put the page as it lies in the store, every byte of it checked, into ``slot``."""
    from kvg.model.planes import join_planes
    from kvg.model.state import place_page

    placing = slot.state.placing(group, page.start, page.end)
    if placing is None:
        raw = store.objects.read(page.digest, size=page.size, what=name)
        check_page(raw, group, page.n_tokens, what=name)
        place_page(slot.state, group, page.start, page.end, raw)
        return
    with store.objects.open_pieces(page.digest, size=page.size, what=name) as reader:
        give_checked(
            reader,
            page,
            group,
            placing.put,
            what=name,
            join=join_planes,
            most=placing.piece_bytes,
            buffers=own,
        )


def _witness(session: Session, slot: Slot, manifest: Manifest, ids: Sequence[int]) -> GateOutcome:
    """Run the last token after the restored pages: its logits are those of the manifest."""
    from kvg.model.dtypes import tensor_digest

    wanted = manifest.witnesses[-1]
    found = tensor_digest(session.resume(slot, ids[-1], ())[0])
    wrong = [] if found == wanted.logits else [f"{found} at {wanted.position}, not {wanted.logits}"]
    record: Json = {"position": wanted.position, "expected": wanted.logits, "computed": found}
    return _outcome(WITNESS, wrong, record)


def _outcome(gate: str, wrong: list[str], record: Json) -> GateOutcome:
    return outcome_of(gate, gate, "; ".join(wrong[:8]), record)
