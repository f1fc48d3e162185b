"""Forgetting on a remote: pointers off, the log with its tombstone, then every object.

Rules:

- it comes after the local forget: the tombstone is in this store's log, and travels with it;
- every log and ref there is proved first. Where one can't be, no object is removed: nobody knows
  what it needs;
- only pointers into this store's own log are taken off. Another publisher's stays, with what it
  needs, and is told as a failure;
- the manifest goes last: as long as it is there, doing it again finishes what was cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from kvg.digest import Digest, short
from kvg.errors import Conflict, Corrupt, Incompatible, RemoteFailed
from kvg.flow.exchange.holding import hold_back
from kvg.flow.exchange.needed import closure_there, marked, read_there
from kvg.flow.exchange.places import opened
from kvg.flow.exchange.reading import MAX_LINE_BYTES, REFUSED, Reader, RemoteRef, told
from kvg.flow.exchange.receiving import ENVELOPE_LIMIT_BYTES, MANIFEST_LIMIT_BYTES
from kvg.flow.exchange.sending import send_log
from kvg.flow.records.exchange import ForgottenThere
from kvg.flow.records.findings import Finding
from kvg.flow.records.upkeep import Remaining
from kvg.objects.manifest import parse_manifest
from kvg.remote.file_remote import FileRemote
from kvg.remote.layout import CHECKPOINT
from kvg.store.closure import digests_named

if TYPE_CHECKING:
    from kvg.flow.exchange.alive import Removal
    from kvg.flow.exchange.places import Place
    from kvg.flow.records import Record
    from kvg.flow.settings import Settings
    from kvg.remote import Remote
    from kvg.remote.registry import RegistryRemote
    from kvg.store import Store

AGAIN = "once that is mended: kvg forget {} --remote {}"


def forget_there(
    store: Store, settings: Settings, place: Place, digest: Digest
) -> Iterator[Record]:
    """Remove from ``place`` what only the artifact ``digest`` needs there.

    Yields what stays because something else there needs it, what could not be removed, and one
    ``remote-forgotten``. Everything that goes wrong is told, since the artifact is gone here.
    """
    try:
        with opened(place, settings) as remote, store.exchange.exclusive():
            yield from _Forgetting(store, settings, place, remote, digest).run()
    except (*REFUSED, RemoteFailed) as error:
        hint = AGAIN.format(short(digest), place.name)
        yield Finding(error.code, error.kind, place.name, error.message, error.hint or hint)


class _Forgetting:
    """One artifact on one remote."""

    def __init__(
        self, store: Store, settings: Settings, place: Place, remote: Remote, digest: Digest
    ) -> None:
        self._store = store
        self._dry_run = settings.dry_run
        self._report = settings.report
        self._place = place
        self._remote = remote
        self._digest = digest
        self._reader = Reader(
            store, place, remote, keep=not settings.dry_run, report=settings.report
        )
        self._refs: list[str] = []
        self._objects = self._bytes = self._stays = 0

    def run(self) -> Iterator[Record]:
        """See ``forget_there``."""
        if not self._remote.is_writable:
            raise RemoteFailed(
                f"{self._remote.url}: can only be read: {short(self._digest)} stays there",
                hint="remove it where that is written, then kvg forget --remote there",
            )
        self._remote.check()
        if isinstance(self._remote, FileRemote):
            origin = self._store.log.origin
            with marked(self._remote, origin, self._report, dry_run=self._dry_run) as removal:
                yield from self._files(self._remote, removal)
        else:
            yield from self._registry()
        yield ForgottenThere(
            remote=self._place.name,
            digest=self._digest,
            refs=tuple(sorted(self._refs)),
            objects=self._objects,
            bytes=self._bytes,
            remaining=self._stays,
            dry_run=self._dry_run,
        )

    def _files(self, remote: FileRemote, removal: Removal | None) -> Iterator[Record]:
        users: dict[Digest, set[str]] = {}
        own, held, unknown = self._look(users)
        unknown += self._worked_in(remote)
        yield from (*held, *unknown)
        stuck = list(self._take_off(own))
        yield from stuck
        yield from self._send_log()
        if unknown or stuck:
            return  # nobody knows what is needed there
        objects, unread = self._belongings()
        yield from unread
        for item in objects:
            size = remote.object_size(item)
            if item in users:
                if size:
                    self._stays += 1
                    yield Remaining(item, "object", tuple(sorted(users[item])))
                continue
            if size:
                self._objects += 1
                self._bytes += size if removal is None else removal.remove(item)

    def _worked_in(self, remote: FileRemote) -> list[Finding]:
        """What to tell where the remote is a store: its own refs are not those of a remote."""
        there = remote.store_log()
        if there is None or not there.size:
            return []
        error = Conflict(
            f"{remote.url}: is a store with a log of its own: objects stay, its refs may need them",
            hint=f"kvg forget {short(self._digest)}, run in it",
        )
        return [told(error, self._place.name)]

    def _look(
        self, users: dict[Digest, set[str]]
    ) -> tuple[list[RemoteRef], list[Finding], list[Finding]]:
        """The own pointers to the artifact, those of others to it, and what can't be proved.

        Fills ``users`` with who else needs which object there.
        """
        own: list[RemoteRef] = []
        held: list[Finding] = []
        unknown: list[Finding] = []
        for origin in self._remote.origins():
            try:
                self._reader.log(origin)
            except REFUSED as error:
                unknown.append(told(error, origin))
        for found in self._reader.refs():
            if isinstance(found, Finding):
                unknown.append(found)
                continue
            is_it = found.digest == self._digest
            if is_it and found.pointer.origin == self._store.log.origin:
                own.append(found)
                continue
            held += [self._held(found)] if is_it else []
            unknown += self._keep(found, users)
        return own, held, unknown

    def _held(self, found: RemoteRef) -> Finding:
        name = self._place.tracking(found.name)
        return Finding(
            Conflict.code,
            Conflict.kind,
            name,
            f"{name}: of another publisher, and stands for {short(self._digest)}",
            "its publisher has to forget it",
        )

    def _keep(self, found: RemoteRef, users: dict[Digest, set[str]]) -> Iterator[Finding]:
        """Note what ``found`` needs; told where that can't be read."""
        name = self._place.tracking(found.name)
        if not isinstance(self._remote, FileRemote):
            return  # what needs a blob, a registry's tags tell
        try:
            for item in closure_there(
                self._store, self._remote, self._reader, found.digest, found.name
            ):
                users.setdefault(item, set()).add(name)
        except REFUSED as error:
            yield told(error, found.name)

    def _take_off(self, own: Sequence[RemoteRef]) -> Iterator[Finding]:
        for found in own:
            try:
                if not self._dry_run:
                    self._remote.move(found.name, None, expect=found.pointer)
            except (Conflict, RemoteFailed) as error:
                yield told(error, self._place.tracking(found.name))
            else:
                self._refs.append(found.name)
        if self._refs and not self._dry_run:
            self._remote.publish_listing()

    def _send_log(self) -> Iterator[Finding]:
        """Bring the tombstone there, where this store's log is."""
        log = self._store.log
        note = self._remote.log(log.origin).read(CHECKPOINT, MAX_LINE_BYTES)
        if note is None or self._dry_run:
            return
        try:
            hold_back(self._store, self._place, self._remote, log, moving=(), known={})
            send_log(self._remote, log, self._reader.check_own(note), note)
        except REFUSED as error:
            yield told(error, self._place.name)

    def _belongings(self) -> tuple[tuple[Digest, ...], list[Finding]]:
        """What the artifact is made of there, in the order to remove; the manifest last.

        What is gone already is left out.
        """
        what = short(self._digest)
        found: list[Digest] = []
        envelopes = [envelope for _, _, envelope in self._reader.attestations(self._digest)]
        envelopes += self._own_envelopes()
        there = [item for item in dict.fromkeys(envelopes) if self._has(item)]
        unread: list[Finding] = []
        for envelope in there:
            try:
                data = read_there(self._store, self._remote, envelope, ENVELOPE_LIMIT_BYTES, what)
                found += digests_named(data)
            except (Corrupt, Incompatible) as error:
                unread.append(self._unread(error))
        if self._has(self._digest):
            try:
                raw = read_there(
                    self._store, self._remote, self._digest, MANIFEST_LIMIT_BYTES, what
                )
                manifest = parse_manifest(raw, what=what)
                found += [page.digest for page in manifest.pages]
                found.append(manifest.tokens.digest)
            except (Corrupt, Incompatible) as error:
                unread.append(self._unread(error))
        return (*dict.fromkeys([*found, *there]), self._digest), unread

    def _own_envelopes(self) -> Iterator[Digest]:
        """Every envelope that this store's log ever named of it."""
        from kvg.log.entry import AttestationEntry, parse_entry

        for index, raw in enumerate(self._store.log.read()):
            entry = parse_entry(raw, what=f"log entry {index}")
            if isinstance(entry, AttestationEntry) and entry.subject == self._digest:
                yield entry.envelope

    def _has(self, digest: Digest) -> bool:
        return isinstance(self._remote, FileRemote) and self._remote.object_size(digest) > 0

    def _unread(self, error: Corrupt | Incompatible) -> Finding:
        return Finding(
            error.code,
            error.kind,
            self._place.name,
            f"{error.message}: what it names can't be told",
            f"kvg remote gc {self._place.name}",
        )

    def _registry(self) -> Iterator[Record]:
        from kvg.remote.registry import RegistryRemote

        if not isinstance(self._remote, RegistryRemote):
            raise RemoteFailed(f"{self._remote.url}: nothing can be removed there")
        own, held, unknown = self._look({})
        yield from (*held, *unknown)
        yield from self._send_log()
        yield from self._blobs(self._remote, own)

    def _blobs(self, remote: RegistryRemote, own: Sequence[RemoteRef]) -> Iterator[Record]:
        from kvg.remote.forgetting import forget_artifact, is_left

        names = [found.name for found in own]
        with nullcontext() if self._dry_run else remote.removing(self._store.log.origin):
            done = forget_artifact(remote, self._digest, names, dry_run=self._dry_run)
        self._refs += names
        self._objects, self._bytes = done.objects, done.bytes
        for item, tags in done.kept:
            self._stays += 1
            yield Remaining(item, "object", tags)
        if done.refused:
            yield Finding(
                RemoteFailed.code,
                RemoteFailed.kind,
                self._place.name,
                f"{remote.url}: does not delete {len(done.refused)} blobs of "
                f"{short(self._digest)}: {', '.join(short(item) for item in done.refused[:3])}",
                "its administrator's garbage collection removes what no tag needs",
            )
        elif not self._dry_run and not done.kept and is_left(remote, self._digest):
            yield Finding(
                RemoteFailed.code,
                RemoteFailed.kind,
                self._place.name,
                f"{remote.url}: has {short(self._digest)} under no tag: an earlier value of a ref",
                "its administrator's garbage collection removes what no tag needs",
            )
