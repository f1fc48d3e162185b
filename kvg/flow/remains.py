"""What there is to say of a store whose log can't be read: its objects, each by its own digest.

The objects themselves say which artifacts there are; their names are those that the index
remembers. Who signed what, and what was taken back, nobody can tell without the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kvg.digest import Digest, short
from kvg.errors import Corrupt, Incompatible
from kvg.flow.records.findings import Finding
from kvg.store.refs import all_refs
from kvg.store.store import MANIFEST_LIMIT_BYTES
from kvg.verify.findings import Notes

if TYPE_CHECKING:
    from kvg.digest import Buffer
    from kvg.objects.manifest import Manifest
    from kvg.store import Store


class Remains:
    """The objects of a store, read once by ``artifacts``."""

    def __init__(self, store: Store, *, threads: int = 1) -> None:
        self._store = store
        self._threads = threads
        self._notes = Notes()
        self.objects = 0
        """How many were found good, and how many raw ``bytes`` they hold."""
        self.bytes = 0

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is wrong with the objects that were read so far."""
        return tuple(
            Finding(item.code, item.kind, item.object, item.message, item.hint)
            for item in self._notes.findings
        )

    def artifacts(self) -> Iterator[tuple[Digest, tuple[str, ...], Manifest]]:
        """Each artifact whose manifest is there, with its names, as the objects are read."""
        names = _remembered_names(self._store)
        for digest in self._store.objects.all():
            manifest = None
            with self._notes.noting(digest):
                manifest = self._read(digest)
            if manifest is not None:
                refs = names.get(digest, ())
                self._note_missing(manifest, refs[0] if refs else short(digest))
                yield digest, refs, manifest

    def _read(self, digest: Digest) -> Manifest | None:
        """Check the object ``digest``; the manifest that it is, if it is one."""
        raw = self._store.objects.read(digest, what=short(digest), threads=self._threads)
        self.objects += 1
        self.bytes += raw.nbytes
        return _manifest_in(raw)

    def _note_missing(self, manifest: Manifest, what: str) -> None:
        """Note what ``manifest`` names and is not there; pages may be a remote's to keep."""
        needed = {manifest.tokens.digest: "token ids"}
        if not self._store.is_partial:
            needed |= {
                page.digest: f"page {page.group} [{page.start}, {page.end})"
                for page in manifest.pages
            }
        for digest, part in needed.items():
            if not self._store.objects.has(digest):
                with self._notes.noting(digest):
                    raise Corrupt(f"{what}: {part}: object missing", hint="kvg fsck")


def _remembered_names(store: Store) -> Mapping[Digest, tuple[str, ...]]:
    """The names of each artifact as the index last knew them."""
    names: dict[Digest, tuple[str, ...]] = {}
    values = store.index.glimpse(lambda tables: tuple(all_refs(tables))) or ()
    for value in values:
        if value.digest is not None:
            names[value.digest] = (*names.get(value.digest, ()), value.name)
    return names


def _manifest_in(raw: Buffer) -> Manifest | None:
    """The manifest that an object holds, None when it is something else."""
    from kvg.objects.manifest import parse_manifest

    if len(raw) > MANIFEST_LIMIT_BYTES or bytes(raw[:1]) != b"{":
        return None
    try:
        return parse_manifest(bytes(raw), what="manifest")
    except (Corrupt, Incompatible):
        return None
