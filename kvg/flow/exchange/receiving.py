"""Receiving artifacts: into quarantine, checked whole, and only then made part of the store.

Order for one artifact: manifest and attestations; their signatures judged; token ids, pages and
what the attestations name; then everything moves into ``objects/``, the manifest last. The log
entries that make it visible are written by the caller. What is finished stays in quarantine when
the rest fails, so that the next try moves only what is missing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kvg.digest import Digest, short
from kvg.errors import Corrupt, KvgError, NotFound, RemoteFailed
from kvg.flow.exchange.arriving import Arrival, Had, Wanted
from kvg.flow.exchange.elsewhere import GIVES_NOTHING
from kvg.flow.exchange.parallel import in_order
from kvg.flow.exchange.planes import joiner
from kvg.frozen import frozen
from kvg.objects.manifest import check_sizes, parse_manifest
from kvg.objects.page import DTYPE_SIZES, check_page_head, data_start
from kvg.objects.tokens import decode_ids
from kvg.store.closure import digests_named
from kvg.verify.positions import index_in
from kvg.verify.received import judge_received

if TYPE_CHECKING:
    from kvg import codec as kvz
    from kvg.flow.exchange.elsewhere import Elsewhere
    from kvg.flow.settings import Settings
    from kvg.objects.manifest import Manifest, Page
    from kvg.remote import Remote
    from kvg.report import Task
    from kvg.store import Pending, Store
    from kvg.store.objects import ObjectFolder
    from kvg.verify.judgement import Judgement

MANIFEST_LIMIT_BYTES = 64 << 20
ENVELOPE_LIMIT_BYTES = 16 << 20


@frozen
class Received:
    """One artifact in quarantine or here, whole and judged; ``objects`` in the order to keep."""

    digest: Digest
    judgement: Judgement
    objects: tuple[Digest, ...]


class Counts:
    """What has moved. ``bytes`` are of stored forms, as they travelled."""

    def __init__(self) -> None:
        self.moved: set[Digest] = set()
        self.skipped: set[Digest] = set()
        self.bytes = 0
        self.resumed = 0
        self._guard = threading.Lock()

    def add_moved(self, digest: Digest, n_bytes: int) -> None:
        """``digest`` was received; ``n_bytes`` of it moved now."""
        with self._guard:
            self.moved.add(digest)
            self.bytes += n_bytes

    def add_skipped(self, digest: Digest, *, resumed: bool) -> None:
        """``digest`` was here, or in quarantine (``resumed``); told once."""
        with self._guard:
            if digest not in self.moved and digest not in self.skipped:
                self.skipped.add(digest)
                self.resumed += 1 if resumed else 0

    def add_resumed(self) -> None:
        """An object is gone on with where it was cut."""
        with self._guard:
            self.resumed += 1


class MissingObjects(Corrupt):
    """Some objects of an artifact are not on the remote, or damaged; the others are kept."""

    def __init__(self, what: str, missing: Sequence[KvgError]) -> None:
        first = missing[0]
        number = "1 object" if len(missing) == 1 else f"{len(missing)} objects"
        super().__init__(f"{what}: {number} not had: {first.message}")
        self.missing = tuple(missing)

    def as_corrupt(self) -> tuple[Corrupt, ...]:
        """What is missing or damaged, each as a failure of its own."""
        hint = "the others are kept; once it is there, run it again"
        return tuple(
            error if isinstance(error, Corrupt) else Corrupt(f"missing: {error.message}", hint=hint)
            for error in self.missing
        )


class Receiver:
    """Receives from one remote, while ``store.exchange`` is held and ``pending`` is open."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        remote: Remote,
        pending: Pending,
        task: Task,
        *,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        """``elsewhere``: who is asked for what ``remote`` lacks or has damaged."""
        self._elsewhere = elsewhere
        self._store = store
        self._settings = settings
        self._remote = remote
        self._pending = pending
        self._task = task
        self._quarantine: ObjectFolder = store.quarantine
        self._join: kvz.Join | None = None
        self.counts = Counts()

    def receive(
        self,
        digest: Digest,
        attestations: Sequence[tuple[str, int, Digest]],
        *,
        what: str,
        require: Callable[[Judgement], None],
        pages: bool = True,
    ) -> Received:
        """Bring the artifact ``digest`` into quarantine, whole and judged.

        ``attestations`` are (log, position, envelope). ``require`` raises unless the judgement is
        enough; it is asked before anything large moves. Raises ``Corrupt`` (``MissingObjects``
        after everything else was had), ``Untrusted``.
        """
        raw = self._first(Wanted(digest, what, limit=MANIFEST_LIMIT_BYTES), what)
        manifest = parse_manifest(bytes(raw), what=what)
        check_sizes(manifest, what=what)
        envelopes = [
            (origin, index, name, bytes(self._first(self._envelope(name, what), what)))
            for origin, index, name in attestations
        ]
        judgement = judge_received(
            self._store.trust,
            digest,
            envelopes,
            n_pages=len(manifest.pages),
            what=what,
            elsewhere=partial(index_in, self._store, digest),
        )
        require(judgement)
        named = tuple(dict.fromkeys(d for *_, data in envelopes for d in digests_named(data)))
        resources = self._offered(named)
        self._need_all(manifest, resources, what, pages=pages)
        kept = [page.digest for page in manifest.pages if pages]
        order = (*kept, manifest.tokens.digest, *resources, *(d for _, _, d, _ in envelopes))
        return Received(digest, judgement, (*dict.fromkeys(order), digest))

    def receive_pages(self, manifest: Manifest, digests: Container[Digest], *, what: str) -> None:
        """Bring those pages of ``manifest`` that are in ``digests`` into the store, each checked.

        Raises ``MissingObjects`` after the others were had.
        """
        wanted = [item for item in self._pages(manifest, what) if item[0].digest in digests]
        self._need_each(manifest, wanted, what)
        self._adopt([item.digest for item, _ in wanted])

    def adopt(self, received: Sequence[Received]) -> None:
        """Make the artifacts' objects part of the store, each checked before; manifests last."""
        objects = (digest for item in received for digest in item.objects[:-1])
        self._adopt(tuple(dict.fromkeys(objects)))
        self._adopt(tuple(dict.fromkeys(item.digest for item in received)))

    def _adopt(self, digests: Sequence[Digest]) -> None:
        self._quarantine.settle()
        there = [digest for digest in digests if self._quarantine.has(digest)]
        if there:
            self._store.objects.adopt(self._quarantine, there)

    def _need_all(
        self, manifest: Manifest, resources: Sequence[Digest], what: str, *, pages: bool
    ) -> None:
        items: list[tuple[Wanted, Page | None]] = [
            *self._tokens(manifest, what),
            *self._resources(resources, what),
            *(self._pages(manifest, what) if pages else ()),
        ]
        self._need_each(manifest, items, what)

    def _need_each(
        self, manifest: Manifest, items: Sequence[tuple[Wanted, Page | None]], what: str
    ) -> None:
        missing: list[KvgError] = []
        self._join = joiner(sum(wanted.size or 0 for wanted, _ in items))

        def need(wanted: tuple[Wanted, Page | None]) -> KvgError | None:
            try:
                self._check(self._need(wanted[0]), manifest, wanted, what)
            except (Corrupt, NotFound) as error:
                return error
            return None

        try:
            for error in in_order(need, items, jobs=self._settings.jobs):
                missing += [error] if error is not None else []
        finally:
            self._quarantine.settle()
        if missing:
            raise MissingObjects(what, missing)

    def _tokens(self, manifest: Manifest, what: str) -> Iterator[tuple[Wanted, None]]:
        name = f"{what}: token ids"
        yield Wanted(manifest.tokens.digest, name, size=4 * manifest.count, element=4), None

    def _pages(self, manifest: Manifest, what: str) -> Iterator[tuple[Wanted, Page]]:
        for page in {page.digest: page for page in manifest.pages}.values():
            group = manifest.group(page.group)
            yield (
                Wanted(
                    page.digest,
                    f"{what}: page {page.group} [{page.start}, {page.end})",
                    size=page.size,
                    data_start=data_start(group, page.n_tokens),
                    element=DTYPE_SIZES[group.dtype],
                    is_page=True,
                ),
                page,
            )

    def _resources(self, digests: Sequence[Digest], what: str) -> Iterator[tuple[Wanted, None]]:
        for digest in digests:
            yield Wanted(digest, f"{what}: {short(digest)}"), None

    def _envelope(self, digest: Digest, what: str) -> Wanted:
        return Wanted(digest, f"{what}: attestation {short(digest)}", limit=ENVELOPE_LIMIT_BYTES)

    def _offered(self, digests: Sequence[Digest]) -> tuple[Digest, ...]:
        """Those of what statements name that can be had: here, or there."""
        here = {d for d in digests if self._store.objects.has(d) or self._quarantine.has(d)}
        absent = self._remote.missing([d for d in digests if d not in here])
        return tuple(d for d in digests if d not in absent)

    def _check(
        self,
        had: Had,
        manifest: Manifest,
        wanted: tuple[Wanted, Page | None],
        what: str,
    ) -> None:
        item, page = wanted
        if page is not None:
            if had.blake3 != page.blake3:
                raise Corrupt(f"{item.what}: bytes do not match the BLAKE3 of the manifest")
            head = bytes(had.raw[: item.data_start])
            group = manifest.group(page.group)
            check_page_head(head, page.size, group, page.n_tokens, what=item.what)
        elif item.digest == manifest.tokens.digest:
            decode_ids(had.raw, what=item.what, count=manifest.count)

    def _need(self, wanted: Wanted) -> Had:
        """The object: from here, from quarantine, or received and put there."""
        self._pending.add(wanted.digest)
        self._quarantine.settle(wanted.digest)
        for folder in (self._store.objects, self._quarantine):
            if folder.has(wanted.digest):
                try:
                    had = _read(folder, wanted)
                except Corrupt:
                    continue  # what is there is damaged: it is received anew
                self.counts.add_skipped(wanted.digest, resumed=folder is self._quarantine)
                return had
        try:
            return self._receive(wanted, self._remote)
        except (Corrupt, NotFound):
            found = self._from_others(wanted)
            if found is None:
                raise
            return found

    def _from_others(self, wanted: Wanted) -> Had | None:
        """As ``_receive``, from another remote of the store; None where none has it whole."""
        if self._elsewhere is None:
            return None
        for name, remote in self._elsewhere.remotes():
            try:
                had = self._receive(wanted, remote)
            except RemoteFailed:
                self._elsewhere.drop(name)
            except GIVES_NOTHING:
                continue
            else:
                self._elsewhere.note(name)
                return had
        return None

    def _first(self, wanted: Wanted, what: str) -> memoryview:
        """As ``_need``, for what everything else depends on."""
        try:
            return self._need(wanted).raw
        except NotFound as error:
            raise MissingObjects(what, [error]) from None

    def _receive(self, wanted: Wanted, remote: Remote) -> Had:
        with Arrival(self._quarantine, wanted, join=self._join) as arrival:
            begun = arrival.size
            if begun:
                self.counts.add_resumed()
            for piece in remote.get(wanted.digest, start=begun, limit=arrival.most_left):
                arrival.add(piece)
                self._task.advance(len(piece))
            had = arrival.end()
        self.counts.add_moved(wanted.digest, arrival.size - begun)
        return had


def _read(folder: ObjectFolder, wanted: Wanted) -> Had:
    """An object that is in ``folder``, every byte checked. Raises ``Corrupt``."""
    if not wanted.is_page or wanted.size is None:
        return Had(
            folder.read(wanted.digest, size=wanted.size, what=wanted.what, limit=wanted.limit)
        )
    found = folder.check(
        wanted.digest, size=wanted.size, what=wanted.what, head_bytes=wanted.data_start
    )
    return Had(memoryview(found.head), found.blake3)
