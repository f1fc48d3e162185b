"""``kvg verify --recompute``: whether the pages hold what the model computes from the tokens."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvg.digest import Digest, sha256, short
from kvg.errors import Corrupt, Incompatible, KvgError, NotFound, Untrusted
from kvg.flow.records.findings import Finding
from kvg.flow.registered import check_torch, identified, model_of, open_engine

if TYPE_CHECKING:
    from kvg.flow.settings import Settings
    from kvg.model.session import Session
    from kvg.objects.manifest import Manifest, Page
    from kvg.objects.verified import Verified
    from kvg.store import Store

Choose = Callable[[Sequence["Page"], int], Sequence["Page"]]


@dataclass(slots=True)
class Recomputation:
    """A recomputation of ``percent`` of the pages of each artifact; ``pages`` counts those done,
    ``differing`` those of them that are not true.

    ``choose`` picks the pages, by chance as a rule: what is not known before can't be avoided by
    who poisons one.
    """

    store: Store
    settings: Settings
    percent: float
    choose: Choose = random.SystemRandom().sample
    pages: int = 0
    differing: int = 0
    _sessions: dict[tuple[Digest, Digest], Session] = field(default_factory=dict)

    def check(self, name: str, digest: Digest) -> Iterator[Finding]:
        """Recompute pages of one artifact from its tokens; yield each that is not true.

        Nothing is said of an artifact that does not stand as it is: the other checks name why.
        """
        from kvg.verify import verify_to_replay

        try:
            verified = verify_to_replay(self.store, digest, ref=name)
        except (Corrupt, NotFound, Untrusted):
            return
        try:
            session = self._session(verified)
            session.check_window(verified.manifest.count)
        except Incompatible as error:
            yield _finding(error, name, f"{name}: not recomputed: {error.message}")
            return
        yield from self._compare(name, session, verified)

    def _compare(self, name: str, session: Session, verified: Verified) -> Iterator[Finding]:
        from kvg.model.state import capture_page

        manifest = verified.manifest
        pages = self._sample(manifest)
        slot = session.slot()
        session.prefill(slot, verified.ids[: max(page.end for page in pages)], label="recompute")
        for page in pages:
            group = manifest.group(page.group)
            what = f"{name}: page {page.group} [{page.start}, {page.end})"
            found = sha256(capture_page(slot.state, group, page.start, page.end, what=what))
            self.pages += 1
            if found != page.digest:
                self.differing += 1
                told = f"the model computes {short(found)}, the manifest has {short(page.digest)}"
                by = ", ".join(keyid[:12] for keyid in verified.signers)
                error = Corrupt(f"{what} is not true: {told}", hint=f"signed by {by}: kvg show")
                yield _finding(error, page.digest, error.message)

    def _sample(self, manifest: Manifest) -> list[Page]:
        """At least one page, and one prefill as short as the last of them allows."""
        n_pages = len(manifest.pages)
        wanted = min(n_pages, max(1, -int(-n_pages * self.percent // 100)))
        return sorted(self.choose(manifest.pages, wanted), key=lambda page: (page.end, page.group))

    def _session(self, verified: Verified) -> Session:
        manifest = verified.manifest
        key = (manifest.model.fingerprint, manifest.engine.fingerprint)
        session = self._sessions.get(key)
        if session is None:
            model = model_of(self.store, manifest)
            files = identified(self.store, self.settings, model)
            session = open_engine(self.settings, model, files, manifest.engine)
            self._sessions[key] = session
        session.check_engine(verified)
        return session


def start_recomputation(store: Store, settings: Settings, percent: float) -> Recomputation:
    """A recomputation. Raises ``Incompatible`` where torch is absent."""
    check_torch()
    return Recomputation(store, settings, percent)


def _finding(error: KvgError, name: str, message: str) -> Finding:
    return Finding(error.code, error.kind, name, message, error.hint)
