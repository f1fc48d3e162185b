"""``kvg remote gc``: remove from a remote what no ref there needs.

Rules:

- every log and every pointer there is proved first; where one can't be, nothing is removed: nobody
  knows what it needs;
- a push announces itself there before it asks what is missing, and gc leaves a mark before it looks
  for announcements; whichever comes second gives way;
- a push that was killed goes on announcing itself, and so does a gc: it is told by watching that
  nothing renews that (see ``alive``). No two machines' clocks are compared. A gc that was killed is
  gone on with by the same store at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvg.errors import RemoteFailed, UsageError
from kvg.flow.exchange.needed import closure_there, marked
from kvg.flow.exchange.places import find_place, opened
from kvg.flow.exchange.reading import REFUSED, Reader, told
from kvg.flow.records.exchange import RemoteCollected
from kvg.flow.records.findings import Finding
from kvg.remote.address import split_scheme
from kvg.remote.file_remote import FileRemote

if TYPE_CHECKING:
    from kvg.digest import Digest
    from kvg.flow.exchange.alive import Removal
    from kvg.flow.records import Record
    from kvg.flow.settings import Settings
    from kvg.remote import Remote
    from kvg.store import Store


def remote_gc(store: Store, settings: Settings, name: str | None) -> Iterator[Record]:
    """Remove every object of a remote that no ref there needs; earlier values of refs go, too.

    So does what a push that was killed had half written, as long as no process writes on it.

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
        check_nobodys(remote)
        if split_scheme(place.url)[0] == "s3":
            settings.report.notice(
                f"{place.name}: parts of uploads that were killed can't be listed here; a "
                "life-cycle rule of the bucket, AbortIncompleteMultipartUpload, removes them"
            )
        is_dry = settings.tell_dry_run()
        with marked(remote, store.log.origin, settings.report, dry_run=is_dry) as removal:
            reader = Reader(store, place, remote, keep=not settings.dry_run, report=settings.report)
            needed: set[Digest] = set()
            findings = tuple(_look(store, remote, reader, needed))
            yield from findings
            if not findings:
                yield _collect(remote, removal, place.name, needed)
                if removal is not None:
                    remote.publish_listing()  # that of a push which was killed before it


def check_nobodys(remote: Remote) -> None:
    """Raise ``UsageError`` where ``remote`` is a store in which somebody works.

    What its own refs need is not told by the refs of a remote.
    """
    there = remote.store_log()
    if there is not None and there.size:
        raise UsageError(
            f"{remote.url}: is a store with a log of its own, whose refs need what is there, too",
            hint="kvg gc, run in it",
        )


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
            needed.update(closure_there(store, remote, reader, found.digest, found.name))
        except REFUSED as error:
            yield told(reader.blamed(error), found.name)


def _collect(
    remote: FileRemote, removal: Removal | None, name: str, needed: set[Digest]
) -> RemoteCollected:
    objects = size = kept = 0
    for digest in remote.objects():
        if digest in needed:
            kept += 1
            continue
        objects += 1
        size += remote.object_size(digest) if removal is None else removal.remove(digest)
    partial, n_bytes = remote.remove_abandoned(dry_run=removal is None)
    return RemoteCollected(name, objects, size + n_bytes, kept, removal is None, partial)
