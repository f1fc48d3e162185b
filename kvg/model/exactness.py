"""Exactness measured: one text computed in every way that must not matter, and what it gave.

Token ids come from SHAKE-256 of a label, so that a published digest can be recomputed from the
sample's number alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvg import canon
from kvg.digest import Buffer, Digest, sha256, shake256
from kvg.model.dtypes import tensor_digest
from kvg.model.session import Session, Slot, pinned_threads
from kvg.model.state import capture_page, place_page
from kvg.objects.layout import needed_pages
from kvg.objects.manifest import Group

LABEL = "kvg.exactness/1"
SPLITS = ("one-shot", "halves", "pieces", "tokens", "graft")
"""Ways to compute a text: in one pass; in two; in up to eight ragged ones; its last tokens one by
one; from the pages of another slot, with only the last token computed again."""
GRAFT = "graft"
PAGE_TOKENS = 256
N_PIECES = 8
N_SINGLE = 8


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one computation of one text gave.

    ``logits``: of the last position, raw bytes. ``state``: over the digests of all pages that an
    artifact of the text would keep.
    """

    logits: Digest
    state: Digest


@dataclass(frozen=True, slots=True)
class CapturedPage:
    """The raw bytes of one page at positions [start, end)."""

    group: Group
    start: int
    end: int
    raw: Buffer


def made_ids(sample: int, length: int, vocabulary: int) -> tuple[int, ...]:
    """``length`` token ids of sample number ``sample``; those of a shorter text begin alike."""
    noise = shake256(f"{LABEL} {sample}".encode(), 4 * length)
    words = (int.from_bytes(noise[i : i + 4], "little") for i in range(0, len(noise), 4))
    return tuple(word % vocabulary for word in words)


def cut_points(split: str, length: int) -> tuple[int, ...]:
    """Where a text of ``length`` tokens is cut, ascending, 0 and the end left out."""
    if split == "halves":
        found = {length // 2}
    elif split == "pieces":
        noise = shake256(f"{LABEL} pieces {length}".encode(), 4 * (N_PIECES - 1))
        words = (int.from_bytes(noise[i : i + 4], "little") for i in range(0, len(noise), 4))
        found = {word % length for word in words}
    elif split == "tokens":
        found = set(range(max(1, length - N_SINGLE), length))
    else:
        found = set()
    return tuple(sorted(found - {0}))


def captured(session: Session, slot: Slot) -> tuple[CapturedPage, ...]:
    """Every page that an artifact of the text in ``slot`` keeps."""
    return tuple(
        CapturedPage(
            group, start, end, capture_page(slot.state, group, start, end, what=group.name)
        )
        for group in session.model.groups
        for start, end in needed_pages(group, PAGE_TOKENS, slot.length, ())
    )


def state_digest(pages: Sequence[CapturedPage]) -> Digest:
    """One digest over the digests of ``pages``, in their order."""
    return sha256(canon.encode([sha256(page.raw) for page in pages]))


def reference_run(session: Session, ids: Sequence[int]) -> tuple[Outcome, tuple[CapturedPage, ...]]:
    """What a fresh computation in one pass gives, and its pages."""
    slot = session.slot()
    logits = session.run(slot, ids, [len(ids) - 1])[0]
    pages = captured(session, slot)
    return Outcome(tensor_digest(logits), state_digest(pages)), pages


def varied_run(
    session: Session,
    texts: Sequence[Sequence[int]],
    pages: Sequence[tuple[CapturedPage, ...]],
    *,
    split: str,
    threads: int,
) -> tuple[Outcome, ...]:
    """What ``texts`` give side by side in one batch, each cut as ``split`` says.

    ``pages[b]`` are those of text b, used by the graft alone. A text that is done leaves the batch.
    """
    slots = [session.slot() for _ in texts]
    cuts = [(0, *cut_points(split, len(text)), len(text)) for text in texts]
    if split == GRAFT:
        for slot, held, text in zip(slots, pages, texts, strict=True):
            slot.state.reserve(len(text))
            for page in held:
                place_page(slot.state, page.group, page.start, page.end, page.raw)
            put = ((page.group, page.start, page.end) for page in held)
            slot.state.fill(len(text), put)
            slot.truncate(len(text) - 1)
            slot.restored = len(text) - 1
        cuts = [(len(text) - 1, len(text)) for text in texts]
    found: dict[int, Digest] = {}
    with pinned_threads(threads):
        for step in range(max(len(cut) for cut in cuts) - 1):
            rows = [row for row, cut in enumerate(cuts) if step + 1 < len(cut)]
            parts = [texts[row][cuts[row][step] : cuts[row][step + 1]] for row in rows]
            ends = [len(part) - 1 for part in parts]
            logits = session.run_batch([slots[row] for row in rows], parts, ends)
            for at, row in enumerate(rows):
                found[row] = tensor_digest(logits[at, at])
    states = [state_digest(captured(session, slot)) for slot in slots]
    return tuple(Outcome(found[row], state) for row, state in enumerate(states))
