"""Taking refs from a remote into a store: what fetch, pull and clone share."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kvg.digest import Digest, short
from kvg.errors import Corrupt, NotFound, UsageError
from kvg.flow.exchange.elsewhere import Elsewhere
from kvg.flow.exchange.left_out import note_left_out, note_taken_off
from kvg.flow.exchange.needed import closure_there
from kvg.flow.exchange.reading import REFUSED, Reader, RemoteRef, told
from kvg.flow.exchange.receiving import Counts, MissingObjects, Received, Receiver
from kvg.flow.records.exchange import Direction, State, Transfer, TransferRef
from kvg.flow.records.findings import Finding
from kvg.frozen import frozen
from kvg.log.entry import AttestationEntry
from kvg.store import ANY, RefMove, check_ref_name
from kvg.verify.judgement import judge, required_gates

if TYPE_CHECKING:
    from kvg.flow.exchange.places import Place
    from kvg.flow.settings import Settings
    from kvg.remote import Remote
    from kvg.store import Store
    from kvg.trust import TrustFile
    from kvg.verify.judgement import Judgement

BATCH = 64
"""Artifacts that one append to the log makes visible."""


@frozen
class Fetched:
    """A ref as the remote has it, its artifact here and judged. ``before``: when last seen."""

    ref: RemoteRef
    before: Digest | None
    signers: tuple[str, ...]
    received: Received | None

    def done(self, state: State) -> TransferRef:
        """What is told of it."""
        return TransferRef(self.ref.name, self.ref.digest, self.before, state, self.signers)


class Fetch:
    """One fetch, under ``store.exchange``: iterate ``run``, then look at ``fetched``."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        place: Place,
        remote: Remote,
        *,
        pages: bool = True,
        trust: TrustFile | None = None,
    ) -> None:
        """``pages`` False: manifests, token ids and what is attested only.

        ``trust``: whom a dry run goes by, the store's own file where it is None.
        """
        self.has_pages = pages
        self._store = store
        self._settings = settings
        self.place = place
        self._remote = remote
        self.reader = Reader(
            store, place, remote, keep=not settings.dry_run, report=settings.report, trust=trust
        )
        self.locked: Mapping[str, Digest] = {}
        """What some refs have to be, whatever the remote's newest is."""
        self.fetched: list[Fetched] = []
        self.gone: list[TransferRef] = []
        """What the remote had, and has no more; only where all of it was looked at."""
        self._there: tuple[str, ...] = ()
        self._is_by_name = False
        self.counts = Counts()
        self._began = time.monotonic()

    def run(self, names: Sequence[str] | None) -> Iterator[Finding]:
        """Fetch ``names``; yields what is wrong with one while others go on.

        None: all there, as far as the place's filter takes them. Where nothing there is refused,
        ``REMOTE/REF`` of what is no more there goes then, too.

        Raises ``RemoteFailed``, ``NotFound`` where there is no remote, ``NoSpace``, ``UsageError``
        for a name that is none.
        """
        for name in names or ():
            check_ref_name(name)
        self._remote.check()
        self._is_by_name = names is not None
        refused: list[str] = []
        for finding in self._run(names):
            refused.append(finding.object)
            yield finding
        if names is None and not refused and self.place.is_tracked:
            self._drop_gone()
        if self.place.is_tracked and not self._settings.dry_run:
            note_left_out(self._store, self.place.name, refused, looked_at=names)

    def _run(self, names: Sequence[str] | None) -> Iterator[Finding]:
        refs: list[RemoteRef] = []
        if names is None:
            self._there = tuple(self._remote.refs())
        for found in self.reader.refs(self.place.matching(self._there) if names is None else names):
            if isinstance(found, Finding):
                yield found
                continue
            try:
                self.place.check_trackable(found.name)
                refs.append(self.reader.at(found, self.locked.get(found.name, found.digest)))
            except (*REFUSED, UsageError) as error:
                yield told(error, found.name)
        if self._settings.dry_run:
            yield from self._dry(refs)
            return
        for start in range(0, len(refs), BATCH):
            yield from self._batch(refs[start : start + BATCH])

    def _dry(self, refs: Sequence[RemoteRef]) -> Iterator[Finding]:
        """Count what would come: what is small is read there, to tell what it names."""
        here, counts = self._store.objects, self.counts
        for ref in refs:
            try:
                said = self.reader.attestations(ref.digest)
                if self._is_complete(ref.digest, said):
                    self._check_here(ref)
                elif self._is_passed_over(ref):
                    continue
                else:
                    for digest in self._needed_there(ref):
                        (counts.skipped if here.has(digest) else counts.moved).add(digest)
            except REFUSED as error:
                yield told(self.reader.blamed(error), ref.name)
            else:
                self.fetched.append(self._known(ref))
        counts.moved -= self._remote.missing(sorted(counts.moved))  # named there, and no more

    def _needed_there(self, ref: RemoteRef) -> Iterator[Digest]:
        return closure_there(
            self._store, self._remote, self.reader, ref.digest, ref.name, pages=self.has_pages
        )

    def _is_passed_over(self, ref: RemoteRef) -> bool:
        """Whether ``ref`` stands for what was forgotten here; a warning says so. Raises
        ``NotFound`` where it was asked for by name."""
        if ref.digest not in self._store.forgotten():
            return False
        why = f"{ref.name}: {short(ref.digest)} was removed here with kvg forget; not fetched"
        if self._is_by_name:
            raise NotFound(why, hint="kvg deposit makes it again")
        self._settings.report.warning(why)
        return True

    def _drop_gone(self) -> None:
        """``REMOTE/REF`` of what is no more there goes; one's own refs stay."""
        start = self.place.tracking("")
        seen = {
            name.removeprefix(start): digest
            for name, digest in self._store.refs().items()
            if name.startswith(start)
        }
        gone = {name: seen[name] for name in seen.keys() - set(self._there)}
        self.gone = [TransferRef(name, None, was, "gone") for name, was in gone.items()]
        if self._settings.dry_run:
            return
        if gone:
            self._store.publish([RefMove(self.place.tracking(name), None, ANY) for name in gone])
        note_taken_off(self._store, self.place.name, gone=gone, there=self._there)

    def _batch(self, refs: Sequence[RemoteRef]) -> Iterator[Finding]:
        store = self._store
        with (
            store.pending() as pending,
            self._settings.report.task("fetch", 0, "B") as task,
            Elsewhere(store, self._settings, self.place) as elsewhere,
        ):
            receiver = Receiver(
                store, self._settings, self._remote, pending, task, elsewhere=elsewhere
            )
            receiver.counts = self.counts
            taken: list[Fetched] = []
            for ref in refs:
                try:
                    taken += self._one(receiver, ref)
                except MissingObjects as error:
                    yield from (told(missing, ref.name) for missing in error.as_corrupt())
                except REFUSED as error:
                    yield told(error, ref.name)
            self._publish(taken, receiver)
            elsewhere.tell()
        self.fetched += taken

    def _one(self, receiver: Receiver, ref: RemoteRef) -> tuple[Fetched, ...]:
        known = self._known(ref)
        said = self.reader.attestations(ref.digest)
        if self._is_complete(ref.digest, said):
            self._check_here(ref)
            return (known,)
        if self._is_passed_over(ref):
            return ()
        try:
            received = receiver.receive(
                ref.digest, said, what=ref.name, require=self._require(ref), pages=self.has_pages
            )
        except Corrupt as error:
            for missing in error.missing if isinstance(error, MissingObjects) else ():
                self.reader.blamed(missing)
            raise self.reader.blamed(error) from None
        return (Fetched(ref, known.before, received.judgement.depositors, received),)

    def _check_here(self, ref: RemoteRef) -> None:
        """What is here already gets no name by this that it could not be received under."""
        own = self._store.refs()
        if any(own.get(n) != ref.digest for n in (ref.name, self.place.tracking(ref.name))):
            self._require(ref)(judge(self._store, ref.digest, what=ref.name))

    def _require(self, ref: RemoteRef) -> _Requirement:
        return _Requirement(self._store, self.place.tracking(ref.name))

    def _known(self, ref: RemoteRef) -> Fetched:
        return Fetched(ref, self._store.ref(self.place.tracking(ref.name)), (), None)

    def _is_complete(self, digest: Digest, said: Sequence[tuple[str, int, Digest]]) -> bool:
        """Whether the artifact is here with everything that is said of it there."""
        store = self._store
        here = {item.envelope for item in store.attestations(digest)}
        if not here or not {envelope for *_, envelope in said} <= here:
            return False
        if not store.objects.has(digest):
            return False
        manifest = store.manifest(digest)
        pages = manifest.pages if self.has_pages else ()
        needed = [manifest.tokens.digest, *(page.digest for page in pages)]
        return all(store.objects.has(item) for item in needed)

    def _publish(self, taken: Sequence[Fetched], receiver: Receiver) -> None:
        """Make the artifacts visible: objects, receipts, then one append to the log."""
        store, now = self._store, int(time.time())
        entries: list[AttestationEntry | RefMove] = []
        came = [item for item in taken if item.received is not None]
        receiver.adopt([item.received for item in came if item.received is not None])
        said = {item.ref.digest: self.reader.attestations(item.ref.digest) for item in came}
        self._keep_receipts([item for items in said.values() for item in items])
        for digest, items in said.items():
            envelopes = dict.fromkeys(envelope for *_, envelope in items)
            entries += [AttestationEntry(now, digest, envelope) for envelope in envelopes]
        refs = store.refs()
        for item in taken if self.place.is_tracked else ():
            name = self.place.tracking(item.ref.name)
            if item.ref.is_newest and refs.get(name) != item.ref.digest:
                entries.append(RefMove(name, item.ref.digest, ANY))
        if entries:
            store.publish(entries, now=now)
        store.index.list_again(item.ref.digest for item in taken)

    def _keep_receipts(self, said: Sequence[tuple[str, int, Digest]]) -> None:
        """``said``: (log, position, envelope)."""
        own = self._store.log.origin
        for origin in dict.fromkeys(origin for origin, *_ in said if origin != own):
            log = self.reader.log(origin).log
            if log is not None:
                receipts = [(d, log.receipt(index)) for name, index, d in said if name == origin]
                self._store.peers.keep_receipts(origin, receipts)

    def transfer(self, direction: Direction, refs: Sequence[TransferRef]) -> Transfer:
        """What this fetch did: what became of ``refs``, and what is no more there."""
        return Transfer(
            direction=direction,
            remote=self.place.name,
            refs=tuple(sorted((*refs, *self.gone), key=lambda item: item.ref)),
            objects_sent=len(self.counts.moved),
            objects_skipped=len(self.counts.skipped),
            bytes=self.counts.bytes,
            resumed=self.counts.resumed,
            seconds=time.monotonic() - self._began,
            dry_run=self._settings.dry_run,
        )


class _Requirement:
    """What an artifact must have by this store's own rules before it is received."""

    def __init__(self, store: Store, what: str) -> None:
        self._store = store
        self._what = what

    def __call__(self, judgement: Judgement) -> None:
        judgement.check_signed(self._store.trust, what=self._what)
        judgement.check_required(required_gates(self._store), what=self._what)
