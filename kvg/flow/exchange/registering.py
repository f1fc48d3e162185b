"""Sending artifacts to a container registry: blobs first, then what names them.

Objects go as they are stored here, never re-encoded: a registry names a blob by the digest of its
own bytes. The image manifest of an artifact is made when its ref is moved, last of all.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import TYPE_CHECKING

from kvg.digest import Buffer, Digest, sha256_all, short
from kvg.errors import Corrupt
from kvg.flow.exchange.parallel import in_order
from kvg.flow.exchange.sending import Form, Outgoing, Sent, stored_form
from kvg.frozen import frozen
from kvg.objects.manifest import MAX_SIZE_BYTES, PAGE_MEDIA_TYPE, TOKENS_MEDIA_TYPE
from kvg.remote import oci
from kvg.remote.registry import Held

if TYPE_CHECKING:
    from kvg.flow.exchange.begun import Begun
    from kvg.flow.settings import Settings
    from kvg.remote.oci import Descriptor
    from kvg.remote.registry import RegistryRemote
    from kvg.report import Task
    from kvg.store import Store
    from kvg.store.closure import Closure


@frozen
class Piece:
    """One blob: the object in it (None: a receipt), what kind it is, whether as raw bytes."""

    digest: Digest | None
    kind: str
    is_raw: bool = False
    position: int | None = None
    """The entry of the log that a receipt is for."""


class ArtifactSender:
    """Sends to one registry. As ``Sender``."""

    def __init__(self, store: Store, settings: Settings, remote: RegistryRemote) -> None:
        self._store = store
        self._settings = settings
        self._remote = remote

    def send(self, outgoing: Outgoing, begun: Begun, *, task: Task, read_back: bool) -> Sent:
        """Put every blob that the registry lacks; see ``Sender.send``."""
        sent = Sent()
        known: dict[Piece, Descriptor] = {}
        for artifact in outgoing.artifacts:
            pieces = tuple(dict.fromkeys(self._pieces(artifact)))
            wanted = [piece for piece in pieces if piece not in known]

            def put(piece: Piece) -> tuple[Piece, Descriptor | Corrupt, bool]:
                return self._put(piece, outgoing, read_back=read_back)

            for piece, described, is_new in in_order(put, wanted, jobs=self._settings.jobs):
                task.advance(1)
                if isinstance(described, Corrupt):
                    sent.failed[piece.digest or artifact.digest] = described
                    continue
                known[piece] = described
                if piece.digest is not None:
                    sent.read_back += read_back
                    sent.objects += is_new
                    sent.skipped += not is_new
                    sent.resumed += not is_new and piece.digest in begun.earlier
                    begun.add([piece.digest] if is_new else ())
                sent.bytes += described.size if is_new else 0
            if all(piece in known for piece in pieces):
                self._remote.hold(_held(pieces, known))
        return sent

    def measure(self, outgoing: Outgoing, missing: Container[Digest]) -> int:
        """See ``Sender.measure``; with the receipts of what would go."""
        pieces = dict.fromkeys(
            piece
            for artifact in outgoing.artifacts
            for piece in self._pieces(artifact)
            if (piece.digest or artifact.digest) in missing
        )
        parts = (part for piece in pieces for part in self._parts(piece, outgoing))
        return sum(memoryview(part).nbytes for part in parts)

    def _pieces(self, artifact: Closure) -> Iterator[Piece]:
        """Every blob of an artifact; the first is its manifest."""
        yield Piece(artifact.digest, oci.MANIFEST, is_raw=True)
        yield Piece(artifact.manifest.tokens.digest, TOKENS_MEDIA_TYPE)
        yield from (Piece(digest, PAGE_MEDIA_TYPE) for digest in artifact.pages)
        for item in self._store.attestations(artifact.digest):
            yield Piece(item.envelope, oci.ENVELOPE, is_raw=True)
            yield Piece(None, oci.RECEIPT, position=item.index)
        yield from (Piece(digest, oci.STORED) for digest in artifact.resources)

    def _put(
        self, piece: Piece, outgoing: Outgoing, *, read_back: bool
    ) -> tuple[Piece, Descriptor | Corrupt, bool]:
        try:
            parts = self._parts(piece, outgoing)
        except Corrupt as error:
            return piece, error, False
        blob = sha256_all(parts)
        size = sum(memoryview(part).nbytes for part in parts)
        is_new = self._remote.put_blob(blob, parts)
        if read_back and not self._remote.blob_is_good(blob, size):
            is_new = self._remote.put_blob(blob, parts, again=True)
            if not self._remote.blob_is_good(blob, size):
                told = Corrupt(
                    f"{self._remote.url}: blob {blob} is damaged there, and what is put in "
                    "its place is not taken up",
                    hint="whoever runs the registry removes the file of that blob; then push again",
                )
                return piece, told, is_new
        said = () if piece.digest is None else ((oci.RAW_DIGEST, str(piece.digest)),)
        notes = () if piece.kind == oci.MANIFEST else said
        return piece, oci.Descriptor(piece.kind, blob, size, notes), is_new

    def _parts(self, piece: Piece, outgoing: Outgoing) -> Sequence[Buffer]:
        if piece.digest is None:
            return [self._store.log.receipt(piece.position or 0)]
        if piece.is_raw:
            what = f"object {short(piece.digest)}"
            return [self._store.objects.read(piece.digest, what=what, limit=MAX_SIZE_BYTES)]
        return stored_form(
            self._store, piece.digest, outgoing.forms.get(piece.digest, Form()), codec=None
        )


def _held(pieces: Sequence[Piece], known: dict[Piece, Descriptor]) -> Held:
    described = [known[piece] for piece in pieces]
    kinds = (TOKENS_MEDIA_TYPE, PAGE_MEDIA_TYPE)
    return Held(
        config=described[0],
        layers=tuple(item for item in described[1:] if item.media_type in kinds),
        attestations=tuple(item for item in described[1:] if item.media_type not in kinds),
    )
