"""One deposited text, to be grafted again and again in a store that goes afterwards."""

from __future__ import annotations

import os
import pydoc_data.topics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvg.flow.bench.library import Library
from kvg.flow.records.bench import RestoreRow
from kvg.flow.records.computed import Deposited
from kvg.flow.requests import DepositRequest
from kvg.objects.page import DTYPE_SIZES, data_start

if TYPE_CHECKING:
    from kvg.model.session import Slot
    from kvg.objects.manifest import Page
    from kvg.objects.verified import Verified

CACHES = ("warm", "kept", "cold")
"""Where pages come from and go to: see ``RestoreRow``."""

FORMS = (("raw", 0), ("planes", 2))
"""How pages are stored, and the codec of that."""


@dataclass(frozen=True, slots=True)
class Run:
    """One graft: milliseconds to verify the artifact, to restore it, and from there to the first
    token; whether that is the right one."""

    verify_ms: float
    restore_ms: float
    token_ms: float
    is_exact: bool

    @property
    def first_token_ms(self) -> float:
        return self.verify_ms + self.restore_ms + self.token_ms


@dataclass(frozen=True, slots=True)
class Measured:
    """One deposited text, the time of its prefill, and the first token of that."""

    library: Library
    deposited: Deposited
    verified: Verified
    repeats: int
    prefill_ms: float
    token: int

    @classmethod
    def of(cls, library: Library, length: int, repeats: int, *, skip: int = 0) -> Measured:
        """About ``length`` tokens of Python's language reference, from letter ``skip`` on."""
        from kvg.model.session import lowest_maximum
        from kvg.verify import verify_artifact

        topics = pydoc_data.topics.topics
        text = "\n".join(topics[name] for name in sorted(topics))[skip : skip + 12 * length + 64]
        text = text[: library.tokenizer.prefix(text, length)]
        request = DepositRequest(f"text-{length}-{skip}", text=text)
        from kvg.flow.deposit import deposit

        deposited = deposit(library.store, library.settings, request)
        verified = verify_artifact(library.store, deposited.digest)
        session, last = library.session, verified.manifest.count - 1
        began = time.perf_counter()
        logits = session.prefill(session.slot(), verified.ids, [last]).logits[last]
        token = lowest_maximum(logits)
        prefill_ms = (time.perf_counter() - began) * 1e3
        return cls(library, deposited, verified, repeats, prefill_ms, token)

    @property
    def pages(self) -> tuple[Page, ...]:
        return self.verified.manifest.pages

    @property
    def bytes_raw(self) -> int:
        return sum(page.size for page in self.pages)

    def store_as(self, codec: int) -> None:
        """Put every page in the stored form of ``codec``, under the same digests."""
        objects = self.library.store.objects
        for page in self.pages:
            group = self.verified.manifest.group(page.group)
            raw = bytes(self.verified.read_page(page))
            objects.remove(page.digest)
            objects.put(
                raw,
                digest=page.digest,
                data_start=data_start(group, page.n_tokens),
                element=DTYPE_SIZES[group.dtype],
                codec=codec,
            )

    def row(self, form: str, cache: str) -> RestoreRow:
        """Grafts as ``kvg graft`` does them: verify, restore, prove by the witness, choose.

        The times are those of the run in the middle, so that they add up.
        """
        runs = []
        kept = self.library.session.slot() if cache == "kept" else None
        for number in range(self.repeats + 1):
            if cache == "cold":
                self.drop()
            runs.append(self.graft(kept))
            if number == 0 and cache != "cold":
                runs.clear()  # the first one fills the cache
        middle = sorted(runs, key=lambda run: run.first_token_ms)[(len(runs) - 1) // 2]
        return RestoreRow(
            tokens=self.verified.manifest.count,
            form=form,
            cache=cache,
            repeats=len(runs),
            bytes_raw=self.bytes_raw,
            bytes_stored=self.bytes_stored,
            prefill_ms=self.prefill_ms,
            verify_ms=middle.verify_ms,
            restore_ms=middle.restore_ms,
            token_ms=middle.token_ms,
            first_token_ms=middle.first_token_ms,
            factor=self.prefill_ms / middle.first_token_ms,
            exact=all(run.is_exact for run in runs),
            runs_ms=tuple((run.verify_ms, run.restore_ms, run.first_token_ms) for run in runs),
        )

    @property
    def bytes_stored(self) -> int:
        """Bytes of the pages' files as they are now."""
        return sum(self.library.store.objects.stored_size(page.digest) for page in self.pages)

    def graft(self, kept: Slot | None = None) -> Run:
        """One graft, to a new slot or to one that is ``kept``, and its first token.

        A witness that is not met is raised.
        """
        from kvg.model.session import lowest_maximum
        from kvg.verify import verify_artifact

        session = self.library.session
        began = time.perf_counter()
        verified = verify_artifact(self.library.store, self.verified.digest)
        checked = time.perf_counter()
        slot = kept or session.slot()
        slot.truncate(0)
        session.restore(slot, verified)
        restored = time.perf_counter()
        proof, logits = session.resume(slot, verified.ids[-1], ())
        session.check_witness(verified, verified.manifest.witnesses[-1], proof)
        token = lowest_maximum(logits)
        ended = time.perf_counter()
        return Run(
            (checked - began) * 1e3,
            (restored - checked) * 1e3,
            (ended - restored) * 1e3,
            token == self.token,
        )

    def drop(self) -> None:
        """Have the system forget the pages' files."""
        for page in self.pages:
            fd = os.open(self.library.store.objects.stored_path(page.digest), os.O_RDONLY)
            try:
                os.fsync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)
