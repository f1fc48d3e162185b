"""``kvg remote gc``: remove from a remote what no ref there needs.

Rules:

- every log and every pointer there is proved first; where one can't be, nothing is removed: nobody
  knows what it needs;
- a push announces itself there before it asks what is missing, and gc leaves a mark before it looks
  for announcements; whichever comes second gives way. No clock decides anything;
- a gc that was killed is gone on with by the same store. A push that was killed is announced until
  the same store pushes again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kvg import codec as kvz
from kvg.digest import Digest, short
from kvg.errors import Corrupt, NotFound, RemoteFailed
from kvg.flow.exchange.places import find_place, opened
from kvg.flow.exchange.reading import REFUSED, Reader, told
from kvg.flow.exchange.receiving import ENVELOPE_LIMIT_BYTES, MANIFEST_LIMIT_BYTES
from kvg.flow.records.exchange import RemoteCollected
from kvg.flow.records.findings import Finding
from kvg.objects.manifest import parse_manifest
from kvg.remote.file_remote import FileRemote
from kvg.store.closure import digests_named
from kvg.store.objects import HEADER_SLACK_BYTES

if TYPE_CHECKING:
    from kvg.flow.records import Record
    from kvg.flow.settings import Settings
    from kvg.remote import Remote
    from kvg.store import Store


def remote_gc(store: Store, settings: Settings, name: str | None) -> Iterator[Record]:
    """Remove every object of a remote that no ref there needs; earlier values of refs go, too.

    Yields what can't be proved, and then removes nothing; else one ``remote-collected``. Raises
    ``Conflict`` while another pushes or collects there, ``RemoteFailed`` where it can't be written.
    """
    place = find_place(store, name)
    with opened(place, settings) as remote, store.exchange.exclusive():
        if not isinstance(remote, FileRemote) or not remote.is_writable:
            raise RemoteFailed(
                f"{place.name}: {remote.url} is not kvg's to clean",
                hint="registries and web servers do that themselves",
            )
        remote.check()
        with _marked(remote, store.log.origin, dry_run=settings.tell_dry_run()):
            reader = Reader(store, place, remote, keep=not settings.dry_run)
            needed: set[Digest] = set()
            findings = tuple(_look(store, remote, reader, needed))
            yield from findings
            if not findings:
                yield _collect(settings, remote, place.name, needed)


@contextmanager
def _marked(remote: FileRemote, owner: str, *, dry_run: bool) -> Iterator[None]:
    if dry_run:
        yield
        return
    remote.begin_gc(owner)
    try:
        yield
    finally:
        remote.end_gc()


def _look(store: Store, remote: Remote, reader: Reader, needed: set[Digest]) -> Iterator[Finding]:
    """Fill ``needed``; yields what can't be proved or read."""
    for origin in remote.origins():
        try:
            reader.log(origin)
        except REFUSED as error:
            yield told(error, origin)
    for found in reader.refs():
        if isinstance(found, Finding):
            yield found
            continue
        try:
            needed.update(_closure(store, remote, reader, found.digest, found.name))
        except REFUSED as error:
            yield told(error, found.name)


def _closure(
    store: Store, remote: Remote, reader: Reader, digest: Digest, what: str
) -> Iterator[Digest]:
    """Everything that the artifact ``digest`` needs there."""
    yield digest
    manifest = parse_manifest(_read(store, remote, digest, MANIFEST_LIMIT_BYTES, what), what=what)
    yield manifest.tokens.digest
    yield from (page.digest for page in manifest.pages)
    for _, _, envelope in reader.attestations(digest):
        yield envelope
        yield from digests_named(_read(store, remote, envelope, ENVELOPE_LIMIT_BYTES, what))


def _read(store: Store, remote: Remote, digest: Digest, limit: int, what: str) -> bytes:
    name = f"{what}: object {short(digest)}"
    if store.objects.has(digest):
        try:
            return bytes(store.objects.read(digest, what=name, limit=limit))
        except Corrupt:
            pass  # the remote may have it whole
    try:
        stored = b"".join(remote.get(digest, limit=limit + limit // 32 + HEADER_SLACK_BYTES))
    except NotFound as error:
        raise Corrupt(error.message) from None
    return bytes(kvz.decode(stored, digest=digest, size=None, what=name, limit=limit))


def _collect(
    settings: Settings, remote: FileRemote, name: str, needed: set[Digest]
) -> RemoteCollected:
    objects = size = kept = 0
    for digest in remote.objects():
        if digest in needed:
            kept += 1
            continue
        objects += 1
        size += remote.object_size(digest) if settings.dry_run else remote.remove_object(digest)
    return RemoteCollected(name, objects, size, kept, settings.dry_run)
