"""Sending artifacts: only what the remote lacks, each object checked here before it goes.

Order: pages, token ids, what attestations name, attestations, the manifest; then the log, its
checkpoint last. Pointers are the caller's, and come after all of this.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from kvg import codec as kvz
from kvg.digest import Buffer, Digest, short
from kvg.errors import Conflict, Corrupt, NotFound
from kvg.flow.exchange.parallel import SMALL_BYTES, in_order
from kvg.flow.exchange.planes import splitter
from kvg.frozen import frozen
from kvg.log import rekey as rekeys
from kvg.log.growth import log_files
from kvg.objects.page import DTYPE_SIZES, data_start
from kvg.remote.layout import CHECKPOINT, COSIGNED, PUBLISHER, VERIFIER
from kvg.signing.note import encode_verifier
from kvg.store.closure import Closure, closure
from kvg.store.object_files import CheckedFile, Damaged, StoredFile

if TYPE_CHECKING:
    from kvg.flow.exchange.begun import Begun
    from kvg.flow.exchange.places import Place
    from kvg.flow.settings import Settings
    from kvg.log.log import Log
    from kvg.remote import Remote
    from kvg.report import Task
    from kvg.store import Store

Parts: TypeAlias = "Sequence[Buffer] | StoredFile | CheckedFile"
"""An object as it goes: held, or read from its file as it goes."""

MAX_NOTE_BYTES = 1 << 16
STREAMED_FROM_BYTES = 1 << 20
"""What is at least this long, and goes as it lies here, is never held whole."""

ATTESTATION_START = b'{"envelope":'
"""How an attestation's entry begins, and no other: entries are canonical."""


@frozen
class Form:
    """How an object is best stored: where its data begin, the bytes of one element, its size."""

    data_start: int = 0
    element: int = 1
    size: int | None = None


@frozen
class Outgoing:
    """What is to go: the objects of each artifact in order, and how each is stored."""

    artifacts: tuple[Closure, ...]
    forms: Mapping[Digest, Form]

    def objects(self) -> tuple[Digest, ...]:
        """Every object, each once, an artifact's manifest after all that it names."""
        found = (digest for artifact in self.artifacts for digest in artifact.objects())
        return tuple(dict.fromkeys(found))


def plan(store: Store, digests: Iterable[Digest]) -> Outgoing:
    """What the artifacts ``digests`` consist of. Raises ``Corrupt`` where one is damaged."""
    artifacts = tuple(closure(store, digest) for digest in dict.fromkeys(digests))
    forms: dict[Digest, Form] = {}
    for artifact in artifacts:
        manifest = artifact.manifest
        forms[manifest.tokens.digest] = Form(element=4, size=4 * manifest.count)
        for page in manifest.pages:
            group = manifest.group(page.group)
            start = data_start(group, page.n_tokens)
            forms[page.digest] = Form(start, DTYPE_SIZES[group.dtype], page.size)
    return Outgoing(artifacts, forms)


class Sent:
    """What went. ``failed`` are objects that could not be read here, and why."""

    def __init__(self) -> None:
        self.objects = 0
        self.skipped = 0
        self.resumed = 0
        self.bytes = 0
        self.read_back = 0
        self.failed: dict[Digest, Corrupt] = {}


class Sender:
    """Sends to one remote."""

    def __init__(self, store: Store, settings: Settings, place: Place, remote: Remote) -> None:
        self._store = store
        self._settings = settings
        self._place = place
        self._remote = remote

    def send(self, outgoing: Outgoing, begun: Begun, *, task: Task, read_back: bool) -> Sent:
        """Put every object that the remote lacks; what is damaged here is told, the others go.

        ``begun``: what an earlier push that was cut was to bring, and where that is noted.
        ``read_back``: check what lies there, all of it, and put anew what is damaged.
        """
        objects = outgoing.objects()
        missing = self._remote.missing(objects)
        if read_back:
            missing |= self._damaged([d for d in objects if d not in missing], outgoing.forms)
        sent = Sent()
        sent.skipped = len(objects) - len(missing)
        sent.resumed = len(begun.earlier.intersection(objects) - missing)
        begun.add(missing)
        manifests = {artifact.digest for artifact in outgoing.artifacts}
        for is_last in (False, True):
            self._put_all(
                [d for d in objects if d in missing and (d in manifests) == is_last],
                outgoing.forms,
                sent,
                task,
            )
        if read_back:
            sent.read_back = len(objects)
            still = self._damaged([d for d in objects if d not in sent.failed], outgoing.forms)
            for digest in still:
                sent.failed[digest] = Corrupt(
                    f"{self._place.name}: object {short(digest)} is damaged there",
                    hint="the remote does not keep what it is given",
                )
        return sent

    def _put_all(
        self, digests: Sequence[Digest], forms: Mapping[Digest, Form], sent: Sent, task: Task
    ) -> None:
        encode = self._encoder(digests, forms, in_turn=self._remote.puts_in_turn)

        def put(digest: Digest) -> tuple[Digest, int | Corrupt]:
            try:
                parts = encode(digest)
            except Corrupt as error:
                return digest, error
            try:
                self._remote.put(digest, parts)
            except Damaged as error:
                return digest, error
            return digest, _size_of(parts)

        small = {digest for digest in digests if self._is_small(digest)}
        for are_small in (False, True):
            chosen = [digest for digest in digests if (digest in small) == are_small]
            jobs = self._settings.jobs
            for digest, done in in_order(put, chosen, jobs=jobs, are_small=are_small):
                task.advance(1)
                if isinstance(done, Corrupt):
                    sent.failed[digest] = done
                else:
                    sent.objects += 1
                    sent.bytes += done

    def _is_small(self, digest: Digest) -> bool:
        try:
            return self._store.objects.stored_size(digest) <= SMALL_BYTES
        except NotFound:
            return True  # there is nothing to send: who reads it says so

    def _encoder(
        self, digests: Sequence[Digest], forms: Mapping[Digest, Form], *, in_turn: bool
    ) -> Callable[[Digest], Parts]:
        """What gives each of ``digests`` as it goes to the remote. It raises ``Corrupt``.

        ``in_turn``: a long file may be checked while it goes, and turn out to be damaged then.
        """
        n_bytes = sum(forms[digest].size or 0 for digest in digests if digest in forms)
        split = splitter(n_bytes if self._place.codec == kvz.PLANES else 0)

        objects = self._store.objects
        file_of = objects.checking_file if in_turn else objects.checked_file

        def encode(digest: Digest) -> Parts:
            form = forms.get(digest, Form())
            if self._place.codec == kvz.RAW and (form.size or 0) >= STREAMED_FROM_BYTES:
                file = file_of(digest, size=form.size, what=f"object {short(digest)}")
                if file is not None:
                    return file
            return stored_form(self._store, digest, form, self._place.codec, split=split)

        return encode

    def measure(self, outgoing: Outgoing, missing: Container[Digest]) -> int:
        """How many bytes those of ``missing`` have as they would go. Raises ``Corrupt``."""

        going = [digest for digest in outgoing.objects() if digest in missing]
        encode = self._encoder(going, outgoing.forms, in_turn=False)

        def size(digest: Digest) -> int:
            return _size_of(encode(digest))

        return sum(in_order(size, going, jobs=self._settings.jobs))

    def _damaged(
        self, digests: Sequence[Digest], forms: Mapping[Digest, Form]
    ) -> frozenset[Digest]:
        """Those whose bytes there do not check out."""

        def is_good(digest: Digest) -> bool:
            form = forms.get(digest, Form())
            what = f"{self._place.name}: object {short(digest)}"
            limit = kvz.DEFAULT_LIMIT if form.size is None else 2 * form.size + (1 << 16)
            try:
                stored = b"".join(self._remote.get(digest, limit=limit))
                kvz.decode(stored, digest=digest, size=form.size, what=what)
            except (Corrupt, NotFound):
                return False
            return True

        checked = in_order(is_good, digests, jobs=self._settings.jobs)
        return frozenset(d for d, good in zip(digests, checked, strict=True) if not good)


def _size_of(parts: Parts) -> int:
    if isinstance(parts, StoredFile | CheckedFile):
        return parts.size_bytes
    return sum(memoryview(part).nbytes for part in parts)


def stored_form(
    store: Store,
    digest: Digest,
    form: Form,
    codec: int | None,
    *,
    split: kvz.Split = kvz.split_planes,
) -> Sequence[Buffer]:
    """The object in ``codec`` (None: as it is), every byte checked here. Raises ``Corrupt``.

    ``split`` takes planes apart.
    """
    what = f"object {short(digest)}"
    stored = store.objects.read_stored(digest, what=what)
    if codec == kvz.PLANES and form.element == 1:
        codec = kvz.ZSTD
    is_kept = codec is None or kvz.parse_header(stored, what=what).codec == codec
    raw = kvz.decode(stored, digest=digest, size=form.size, what=what, check_frames=False)
    if codec is None or is_kept:
        return [stored]
    made = kvz.encode(
        raw,
        digest=digest,
        codec=codec,
        planes=form.element if codec == kvz.PLANES else 1,
        data_start=form.data_start if codec == kvz.RAW else 0,
        split=split,
    )
    return list(made.parts())


def send_log(remote: Remote, log: Log, old_size: int, old_note: bytes | None) -> int:
    """Bring this store's log there up to ``log``; returns the bytes that moved.

    ``old_note`` is the checkpoint there, of size ``old_size``, checked to be a part of ``log``.
    A change of key goes by the checkpoint that both keys signed, so that key and checkpoint there
    agree at every point.
    Raises ``Conflict`` when another pushed the same log meanwhile.
    """
    files = remote.log(log.origin)
    n_bytes = 0
    if old_note is None:
        files.write(VERIFIER, verifier_line(log))
    for name, data in log_files(log.tiles, old_size):
        files.write(name, data)
        n_bytes += len(data)
    try:
        for step in rekeys.steps(log, 0 if old_note is None else old_size):
            files.write(rekeys.file_name(step.size), step.note)
            if old_note is not None:
                files.swap(CHECKPOINT, step.note, expect=old_note)
                files.write(VERIFIER, _line(step.line))
                old_note = step.note
        if old_note != log.note:
            files.swap(CHECKPOINT, log.note, expect=old_note)
    except Conflict:
        raise Conflict(
            f"log {log.origin} on {remote.url}: pushed by another process meanwhile",
            hint="push again",
        ) from None
    line = verifier_line(log)
    if files.read(VERIFIER, MAX_NOTE_BYTES) != line:
        files.write(VERIFIER, line)  # a push was cut just before it
    if is_cosigned_anew(remote, log):
        files.write(COSIGNED, log.cosigned)
    return n_bytes


def is_cosigned_anew(remote: Remote, log: Log) -> bool:
    """Whether witnesses cosigned a checkpoint of ``log`` and ``remote`` has another or none."""
    cosigned = log.cosigned
    return bool(cosigned) and remote.log(log.origin).read(COSIGNED, MAX_NOTE_BYTES) != cosigned


def _line(text: str) -> bytes:
    return f"{text}\n".encode()


def verifier_line(log: Log) -> bytes:
    """The file that says which key signs ``log``."""
    return _line(encode_verifier(log.origin, log.verifier))


def send_publisher(remote: Remote, origin: str, note: bytes) -> None:
    """Put the note that vouches for the log ``origin``."""
    remote.log(origin).write(PUBLISHER, note)


def read_publisher(remote: Remote, origin: str) -> bytes | None:
    """The note that vouches for the log ``origin`` there."""
    found = remote.log(origin).read(PUBLISHER, MAX_NOTE_BYTES)
    if found is not None and len(found) > MAX_NOTE_BYTES:
        raise Corrupt(f"log {origin} on {remote.url}: {PUBLISHER} is too large")
    return found


def new_attestations(log: Log, start: int) -> Iterator[Digest]:
    """The artifacts that entries from ``start`` on speak of."""
    from kvg.log.entry import AttestationEntry, parse_entry

    for index, raw in enumerate(log.read(start), start):
        if not raw.startswith(ATTESTATION_START):
            continue
        entry = parse_entry(raw, what=f"log entry {index}")
        if isinstance(entry, AttestationEntry):
            yield entry.subject
