"""No work twice: what a stored artifact can give to a new one that begins with the same ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvg.digest import Digest, sha256
from kvg.errors import Corrupt, Incompatible, Untrusted
from kvg.objects.manifest import Engine, Group, Manifest, Model, Page, Witness, needed_pages
from kvg.objects.tokens import encode_ids, first_difference

if TYPE_CHECKING:
    from kvg.objects.verified import Verified
    from kvg.store import Store


@dataclass(frozen=True, slots=True)
class Plan:
    """What a new artifact is: its ids and where it may be cut."""

    model: Model
    engine: Engine
    groups: tuple[Group, ...]
    page_tokens: int
    ids: tuple[int, ...]
    cuts: tuple[int, ...]

    @property
    def count(self) -> int:
        return len(self.ids)

    def spans(self, group: Group) -> tuple[tuple[int, int], ...]:
        """The positions of the pages that ``group`` keeps."""
        return needed_pages(group, self.page_tokens, self.count, self.cuts)


@dataclass(frozen=True, slots=True)
class Reuse:
    """The first ``n_tokens`` of ``verified`` stand in for computing them.

    ``pages`` are whole pages that the new artifact takes over as they are.
    """

    verified: Verified
    n_tokens: int
    pages: tuple[Page, ...]
    witnesses: tuple[Witness, ...]


def find_same(store: Store, plan: Plan) -> Digest | None:
    """A verified artifact of this very computation. Token ids are compared whole."""
    found = store.find_tokens(
        plan.model.fingerprint,
        plan.engine.fingerprint,
        plan.page_tokens,
        sha256(encode_ids(plan.ids)),
        plan.cuts,
    )
    for digest in found:
        verified = _verified(store, digest)
        if verified is None or verified.manifest.cuts != plan.cuts:
            continue
        if first_difference(verified.ids, plan.ids) is None:
            return digest
    return None


def find_reuse(store: Store, plan: Plan, *, parent: Digest | None) -> Reuse | None:
    """The stored artifact that saves the most tokens of ``plan``; ``parent`` is tried first."""
    best: Reuse | None = None
    for digest in _candidates(store, plan, parent):
        verified = _verified(store, digest)
        if verified is None or not _same_kind(verified.manifest, plan):
            continue
        reuse = reuse_of(verified, plan)
        if reuse is not None and (best is None or reuse.n_tokens > best.n_tokens):
            best = reuse
    return best


def check_parent(verified: Verified, ids: Sequence[int]) -> None:
    """Raise ``Incompatible`` unless ``ids`` begin with all the ids of the parent."""
    index = first_difference(verified.ids, ids)
    if index is not None and index < len(verified.ids):
        raise Incompatible(
            f"{verified.digest}: not a parent of this text: the token ids differ first at {index}",
            hint="the text must begin with the whole text of its parent",
        )


def reuse_of(verified: Verified, plan: Plan) -> Reuse | None:
    """As much of ``verified`` as ``plan`` can take over, or None.

    Sliding layers keep a window of pages only, so the computation can go on only from where all
    that the window reaches is there, and only where no page that the new artifact needs is gone.
    """
    common = first_difference(verified.ids, plan.ids)
    n_common = len(plan.ids) if common is None else common
    n_common = min(n_common, len(verified.ids), len(plan.ids))
    for end in _boundaries(verified, plan, n_common):
        reuse = _reuse_to(verified, plan, end)
        if reuse is not None:
            return reuse
    return None


def _boundaries(verified: Verified, plan: Plan, n_common: int) -> Iterator[int]:
    """Where the computation could go on, the furthest first."""
    whole = verified.manifest.count
    if n_common == whole and plan.engine.reference == "invariant":
        yield whole
    yield from range(n_common // plan.page_tokens * plan.page_tokens, 0, -plan.page_tokens)


def _reuse_to(verified: Verified, plan: Plan, end: int) -> Reuse | None:
    manifest = verified.manifest
    held = {(page.group, page.start, page.end): page for page in manifest.pages}
    taken: list[Page] = []
    for group in plan.groups:
        for start, stop in needed_pages(group, plan.page_tokens, end):
            if not _holds(manifest, group, start, stop):
                return None
        for start, stop in plan.spans(group):
            if stop <= end:
                page = held.get((group.name, start, stop))
                if page is None:
                    return None
                taken.append(page)
            elif start < end and not _holds(manifest, group, start, end):
                return None
    known = {witness.position: witness for witness in manifest.witnesses}
    wanted = [cut - 1 for cut in (*plan.cuts, plan.count) if cut <= end]
    if any(position not in known for position in wanted):
        return None
    return Reuse(verified, end, tuple(taken), tuple(known[position] for position in wanted))


def _holds(manifest: Manifest, group: Group, start: int, stop: int) -> bool:
    """Whether some page of ``group`` holds all of [start, stop)."""
    return any(
        page.group == group.name and page.start <= start and stop <= page.end
        for page in manifest.pages
    )


def _candidates(store: Store, plan: Plan, parent: Digest | None) -> Iterator[Digest]:
    seen: set[Digest] = set()
    if parent is not None:
        seen.add(parent)
        yield parent
    rows = store.find_prefix(
        plan.model.fingerprint, plan.engine.fingerprint, plan.page_tokens, plan.ids
    )
    longest = max((n for n, _ in rows), default=0)
    for n, digest in rows:
        if n == longest and digest not in seen:
            seen.add(digest)
            yield digest


def _same_kind(manifest: Manifest, plan: Plan) -> bool:
    return (
        manifest.model == plan.model
        and manifest.engine == plan.engine
        and manifest.layout.groups == plan.groups
        and manifest.layout.page_tokens == plan.page_tokens
    )


def _verified(store: Store, digest: Digest) -> Verified | None:
    """The artifact, if it stands up to verification now."""
    from kvg.verify import verify_artifact

    try:
        return verify_artifact(store, digest)
    except (Corrupt, Untrusted, Incompatible):
        return None
