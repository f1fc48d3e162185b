"""What an artifact needs on a remote, and the mark that keeps a removal and a push apart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kvg import codec as kvz
from kvg.digest import Digest, short
from kvg.errors import Corrupt, NotFound
from kvg.flow.exchange.alive import Removal, end_killed, removing
from kvg.flow.exchange.receiving import ENVELOPE_LIMIT_BYTES, MANIFEST_LIMIT_BYTES
from kvg.objects.manifest import parse_manifest
from kvg.store.closure import digests_named
from kvg.store.object_files import HEADER_SLACK_BYTES

if TYPE_CHECKING:
    from kvg.flow.exchange.reading import Reader
    from kvg.remote import Remote
    from kvg.remote.file_remote import FileRemote
    from kvg.report import Report
    from kvg.store import Store


@contextmanager
def marked(
    remote: FileRemote, owner: str, report: Report, *, dry_run: bool
) -> Iterator[Removal | None]:
    """No push there meanwhile; None, and no mark, in a dry run. Raises ``Conflict``.

    What is left of a push or a removal that was killed is taken away, after watching it for a
    while.
    """
    if dry_run:
        yield None
        return
    end_killed(remote, owner, report)
    with removing(remote, owner) as removal:
        yield removal


def closure_there(
    store: Store, remote: Remote, reader: Reader, digest: Digest, what: str, *, pages: bool = True
) -> Iterator[Digest]:
    """Everything that the artifact ``digest`` needs there, with or without its ``pages``."""
    yield digest
    manifest = parse_manifest(
        read_there(store, remote, digest, MANIFEST_LIMIT_BYTES, what), what=what
    )
    yield manifest.tokens.digest
    yield from (page.digest for page in manifest.pages if pages)
    for _, _, envelope in reader.attestations(digest):
        yield envelope
        yield from digests_named(read_there(store, remote, envelope, ENVELOPE_LIMIT_BYTES, what))


def read_there(store: Store, remote: Remote, digest: Digest, limit: int, what: str) -> bytes:
    """The raw bytes of an object: from here, or from there. Raises ``Corrupt``."""
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
