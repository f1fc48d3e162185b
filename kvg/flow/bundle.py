"""``kvg bundle``: artifacts in one file, for machines without a network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kvg import codec as kvz
from kvg import durable
from kvg.digest import Buffer, Digest, blake3_hex, hex_of, sha256, sha256_all, short
from kvg.errors import Corrupt, NotFound
from kvg.flow.exchange.contact import choose, key_line, offers, publishers, trust_all
from kvg.flow.exchange.fetching import Fetch
from kvg.flow.exchange.places import DEFAULT_CODEC, Place
from kvg.flow.exchange.publishers import sign_publisher
from kvg.flow.exchange.reading import LOCAL_HINT, REFUSED, Reader, RemoteRef, told
from kvg.flow.exchange.sending import Form, Outgoing, plan, stored_form
from kvg.flow.exchange.supplying import absent, supply
from kvg.flow.exchange.telling import counted
from kvg.flow.pull import take
from kvg.flow.push import offered_keys
from kvg.flow.records.exchange import BundleEntry, BundleSummary, OfferedKey
from kvg.flow.records.findings import Finding
from kvg.flow.settings import signing_key
from kvg.log import rekey as rekeys
from kvg.log.growth import log_files
from kvg.objects.manifest import (
    MAX_SIZE_BYTES,
    PAGE_MEDIA_TYPE,
    TOKENS_MEDIA_TYPE,
    check_sizes,
    parse_manifest,
)
from kvg.objects.page import check_page
from kvg.objects.tokens import decode_ids
from kvg.remote import oci
from kvg.remote.bundle import (
    BLOBS,
    CUT_HINT,
    END,
    INDEX_FILE,
    LAYOUT_BYTES,
    LAYOUT_FILE,
    Bundle,
    encode_member,
    padding,
)
from kvg.remote.layout import CHECKPOINT, COSIGNED, PUBLISHER, VERIFIER
from kvg.signing.note import encode_verifier
from kvg.store.closure import digests_named
from kvg.store.names import check_ref_name
from kvg.store.object_files import LIMIT_BYTES
from kvg.verify.judgement import required_gates
from kvg.verify.positions import index_in
from kvg.verify.received import judge_received

if TYPE_CHECKING:
    from kvg.flow.records import Record
    from kvg.flow.settings import Settings
    from kvg.objects.manifest import Manifest, Page
    from kvg.remote.oci import Descriptor
    from kvg.store import Store
    from kvg.store.closure import Closure

NAME = "bundle"
ENVELOPE_LIMIT_BYTES = 16 << 20


def bundle_create(
    store: Store, settings: Settings, path: Path, refs: Sequence[str] = (), *, pages: bool = True
) -> BundleSummary:
    """Write ``refs`` (all of the store's own without any) and all they need into the file ``path``.

    It holds this store's log, which proves the refs, and the keys on offer. Without ``pages`` the
    manifests and what is attested only. The same store gives the same bytes. Raises ``NotFound``,
    ``Corrupt`` when something is damaged or missing here: then nothing is written.
    """
    target = settings.cwd / path
    durable.check_target(target, option="kvg bundle create")
    own = store.own_refs()
    for name in refs:
        check_ref_name(name)
        if name not in own:
            raise NotFound(f"{name}: no such ref", hint="kvg ls")
    chosen = {name: own[name] for name in (sorted(set(refs)) or sorted(own))}
    if not chosen:
        raise NotFound("no refs to put into a bundle", hint="kvg deposit makes one")
    signer = signing_key(settings, store)
    note = sign_publisher(store.log.origin, store.log.verifier, [signer])
    is_dry = settings.tell_dry_run()
    is_thin = not all(
        _has_pages(store, settings, name, digest)
        for name, digest in chosen.items()
        if pages and store.is_partial
    )
    outgoing = plan(store, chosen.values())
    work = Writer(store, chosen, outgoing, note, pages=pages)
    if is_dry:
        size = 0 if is_thin else sum(memoryview(part).nbytes for part in work.parts())
    else:
        size = durable.replace(target, work.parts(), staging=target.parent)
    n_objects = len(outgoing.objects() if is_thin else work.objects)
    return BundleSummary(str(path), len(chosen), n_objects, size, "created", dry_run=is_dry)


def _has_pages(store: Store, settings: Settings, name: str, digest: Digest) -> bool:
    """Whether every page of ``name`` is here; they are brought first unless it is a dry run."""
    manifest = store.manifest(digest, what=name)
    is_whole = not absent(store, manifest)
    if not is_whole and not settings.dry_run:
        supply(store, settings, manifest, name)
    return is_whole or not settings.dry_run


class Writer:
    """Writes one bundle as a stream: blobs as they are made, then what points at them."""

    def __init__(
        self,
        store: Store,
        refs: dict[str, Digest],
        outgoing: Outgoing,
        note: bytes,
        *,
        pages: bool,
    ) -> None:
        self._store = store
        self._refs = refs
        self._outgoing = outgoing
        self._note = note
        self._pages = pages
        self._written: set[Digest] = set()
        self._listed: list[Descriptor] = []
        self.objects: dict[Digest, Descriptor] = {}

    def parts(self) -> Iterator[Buffer]:
        """The bytes of the tar."""
        yield from _member(LAYOUT_FILE, [LAYOUT_BYTES])
        yield from self._blob(oci.EMPTY_BYTES)
        for artifact in self._outgoing.artifacts:
            yield from self._artifact(artifact)
        yield from self._log()
        yield from self._keys()
        yield from _member(INDEX_FILE, [oci.encode_index(self._listed)])
        yield END

    def _artifact(self, artifact: Closure) -> Iterator[Buffer]:
        manifest = artifact.manifest
        raw = self._read(artifact.digest)
        config = oci.describe(raw, oci.MANIFEST)
        self.objects[artifact.digest] = config
        yield from self._blob(raw)
        wanted = [(manifest.tokens.digest, TOKENS_MEDIA_TYPE)]
        wanted += [(digest, PAGE_MEDIA_TYPE) for digest in artifact.pages if self._pages]
        for digest, kind in wanted:
            yield from self._object(digest, kind)
        layers = tuple(self.objects[digest] for digest, _ in wanted)
        image = oci.encode_image(oci.Image(oci.ARTIFACT, config, layers))
        yield from self._blob(image)
        subject = oci.describe(image, oci.IMAGE, artifact_type=oci.ARTIFACT)
        for name, digest in self._refs.items():
            if digest == artifact.digest:
                self._listed.append(self._named(subject, name))
        yield from self._attestations(artifact, subject)

    def _named(self, image: Descriptor, name: str) -> Descriptor:
        notes = {
            oci.REF: name,
            oci.TAG: name.replace("/", ".."),
            oci.ORIGIN: self._store.log.origin,
            oci.POSITION: str(self._store.history(name)[0].index),
        }
        if not self._pages:
            notes[oci.PAGES] = "none"
        said = tuple(sorted(notes.items()))
        return oci.Descriptor(image.media_type, image.digest, image.size, said, oci.ARTIFACT)

    def _attestations(self, artifact: Closure, subject: Descriptor) -> Iterator[Buffer]:
        layers: list[Descriptor] = []
        for item in self._store.attestations(artifact.digest):
            raw = self._read(item.envelope)
            receipt = self._store.log.receipt(item.index)
            found = oci.describe(raw, oci.ENVELOPE, raw=item.envelope)
            self.objects[item.envelope] = found
            layers += [found, oci.describe(receipt, oci.RECEIPT)]
            yield from self._blob(raw)
            yield from self._blob(receipt)
        for digest in artifact.resources:
            yield from self._object(digest, oci.STORED)
            layers.append(self.objects[digest])
        image = oci.Image(oci.ATTESTATION, _empty(), tuple(layers), subject)
        yield from self._image(image)

    def _log(self) -> Iterator[Buffer]:
        log = self._store.log
        line = (encode_verifier(log.origin, log.verifier) + "\n").encode("utf-8")
        files = [(VERIFIER, line), (PUBLISHER, self._note), (CHECKPOINT, log.note)]
        files += [(COSIGNED, log.cosigned)] if log.cosigned else []
        layers: list[Descriptor] = []
        files += [(rekeys.file_name(step.size), step.note) for step in rekeys.steps(log, 0)]
        for name, data in (*files, *log_files(log.tiles, 0)):
            layers.append(oci.describe(data, oci.LOG_FILE, title=name))
            yield from self._blob(data)
        yield from self._image(oci.Image(oci.LOG, _empty(), tuple(layers)), origin=log.origin)

    def _keys(self) -> Iterator[Buffer]:
        layers: list[Descriptor] = []
        for keyid, text in offered_keys(self._store).items():
            data = text.encode("ascii")
            layers.append(oci.describe(data, oci.PUBLIC_KEY, title=f"{keyid}.pub"))
            yield from self._blob(data)
        yield from self._image(oci.Image(oci.KEYS, _empty(), tuple(layers)))

    def _image(self, image: oci.Image, **said: str) -> Iterator[Buffer]:
        data = oci.encode_image(image)
        self._listed.append(
            oci.describe(data, oci.IMAGE, artifact_type=image.artifact_type, **said)
        )
        yield from self._blob(data)

    def _object(self, digest: Digest, kind: str) -> Iterator[Buffer]:
        if digest in self.objects:
            return
        form = self._outgoing.forms.get(digest, Form())
        parts = stored_form(self._store, digest, form, DEFAULT_CODEC)
        blob = sha256_all(parts)
        size = sum(memoryview(part).nbytes for part in parts)
        said = ((oci.RAW_DIGEST, str(digest)),)
        self.objects[digest] = oci.Descriptor(kind, blob, size, said)
        yield from self._blob_of(blob, parts)

    def _blob(self, data: bytes) -> Iterator[Buffer]:
        yield from self._blob_of(sha256(data), [data])

    def _blob_of(self, digest: Digest, parts: Sequence[Buffer]) -> Iterator[Buffer]:
        if digest not in self._written:
            self._written.add(digest)
            yield from _member(BLOBS + hex_of(digest), parts)

    def _read(self, digest: Digest) -> bytes:
        return bytes(self._store.objects.read(digest, what=short(digest), limit=MAX_SIZE_BYTES))


def _empty() -> Descriptor:
    return oci.describe(oci.EMPTY_BYTES, oci.EMPTY)


def _member(name: str, parts: Sequence[Buffer]) -> Iterator[Buffer]:
    size = sum(memoryview(part).nbytes for part in parts)
    yield encode_member(name, size)
    yield from parts
    yield padding(size)


def bundle_list(settings: Settings, path: Path) -> Iterator[Record]:
    """What a bundle says it holds, refs and then keys on offer; nothing of it is proved."""
    with _opened(settings, path) as bundle:
        for name, digest in sorted(bundle.artifacts.items()):
            manifest = parse_manifest(
                kvz.decode(
                    b"".join(bundle.get(digest, limit=MAX_SIZE_BYTES)),
                    digest=digest,
                    size=None,
                    what=name,
                ).tobytes(),
                what=name,
            )
            n_pages = len(manifest.pages) if bundle.has_pages else 0
            yield BundleEntry(name, digest, manifest.count, n_pages)
        vouching = publishers(bundle)
        for keyid, key in offers(bundle).items():
            yield OfferedKey(keyid, key_line(key), None, keyid in vouching)


@contextmanager
def _opened(settings: Settings, path: Path) -> Iterator[Bundle]:
    """The bundle in the file ``path``; what is malformed in it is not to be looked for here."""
    try:
        bundle = Bundle(settings.cwd / path)
        try:
            yield bundle
        finally:
            bundle.close()
    except Corrupt as error:
        if error.hint in (None, LOCAL_HINT):
            error.hint = _place(path).repair
        raise


def bundle_verify(store: Store, settings: Settings, path: Path) -> Iterator[Record]:
    """Check every byte of a bundle, its log and pointers, and its signatures by this store's trust.

    Nothing is stored. Yields each problem, then the ``bundle``. Raises ``Corrupt`` where the file
    is none.
    """
    with _opened(settings, path) as bundle:
        problems = 0
        for finding in _faults(bundle):
            problems += 1
            yield finding
        reader = Reader(store, _place(path), bundle, keep=False)
        objects: set[Digest] = set()
        refs = 0
        for found in reader.refs():
            if isinstance(found, Finding):
                problems += 1
                is_damage = found.code == Corrupt.code and found.hint in (None, LOCAL_HINT)
                yield replace(found, hint=reader.place.repair) if is_damage else found
                continue
            try:
                _check(store, reader, bundle, found, objects)
            except REFUSED as error:
                problems += 1
                yield told(reader.blamed(error), found.name)
            else:
                refs += 1
        size = (settings.cwd / path).stat().st_size
        state: Literal["verified", "refused"] = "refused" if problems else "verified"
        yield BundleSummary(str(path), refs, len(objects), size, state)


def _faults(bundle: Bundle) -> Iterator[Finding]:
    """What is wrong with a bundle as a file: every blob is whole, named, and there."""
    for digest in bundle.blobs:
        if not bundle.blob_is_good(digest):
            error = Corrupt(f"blob {short(digest)}: bytes do not match its name", hint=CUT_HINT)
            yield told(error, digest)
    for digest, kind in bundle.absent.items():
        yield _absent(digest, kind)
    for digest in bundle.unnamed:
        yield told(Corrupt(f"blob {short(digest)}: nothing in the bundle names it"), digest)


def _absent(digest: Digest, kind: str) -> Finding:
    error = Corrupt(f"blob {short(digest)}: missing, or of another size ({kind})", hint=CUT_HINT)
    return told(error, digest)


def _check(
    store: Store, reader: Reader, bundle: Bundle, ref: RemoteRef, objects: set[Digest]
) -> None:
    """All of one artifact, read in place."""
    what = ref.name

    def read(digest: Digest, size: int | None, limit: int, name: str) -> memoryview:
        bound = limit if size is None else size
        try:
            stored = b"".join(bundle.get(digest, limit=bound + bound // 32 + (1 << 16)))
        except NotFound as error:
            raise Corrupt(error.message) from None
        objects.add(digest)
        return kvz.decode(stored, digest=digest, size=size, what=name, limit=max(bound, 1))

    manifest = parse_manifest(bytes(read(ref.digest, None, MAX_SIZE_BYTES, what)), what=what)
    check_sizes(manifest, what=what)

    def envelope(name: Digest) -> bytes:
        return bytes(read(name, None, ENVELOPE_LIMIT_BYTES, f"{what}: attestation {short(name)}"))

    said = [
        (origin, index, name, envelope(name))
        for origin, index, name in reader.attestations(ref.digest)
    ]
    judgement = judge_received(
        store.trust,
        ref.digest,
        said,
        n_pages=len(manifest.pages),
        what=what,
        elsewhere=partial(index_in, store, ref.digest),
    )
    judgement.check_signed(store.trust, what=what)
    judgement.check_required(required_gates(store), what=what)
    ids = f"{what}: token ids"
    tokens = read(manifest.tokens.digest, 4 * manifest.count, 0, ids)
    decode_ids(tokens, what=ids, count=manifest.count)
    for page in manifest.pages if bundle.has_pages else ():
        name_of = f"{what}: page {page.group} [{page.start}, {page.end})"
        _check_page(manifest, page, read(page.digest, page.size, 0, name_of), name_of)
    named = dict.fromkeys(name for *_, data in said for name in digests_named(data))
    gone = bundle.missing(tuple(named))
    for name in named:
        if name not in gone:
            read(name, None, LIMIT_BYTES, f"{what}: {short(name)}")


def _check_page(manifest: Manifest, page: Page, raw: memoryview, name: str) -> None:
    if blake3_hex(raw) != page.blake3:
        raise Corrupt(f"{name}: bytes do not match the BLAKE3 of the manifest")
    check_page(raw, manifest.group(page.group), page.n_tokens, what=name)


def bundle_apply(
    store: Store,
    settings: Settings,
    path: Path,
    refs: Sequence[str] = (),
    *,
    trust: Sequence[str] = (),
) -> Iterator[Record]:
    """Take ``refs`` (all without any) of a bundle in, as a pull does. Yields and raises as that.

    Of one without pages, manifests and what is attested are taken, and no ref is moved.
    """
    with _opened(settings, path) as bundle, store.exchange.exclusive():
        place = _place(path)
        trusted = (
            trust_all(store, settings, choose(bundle, trust, None, again=place.again))
            if trust
            else None
        )
        work = Fetch(store, settings, place, bundle, pages=bundle.has_pages, trust=trusted)
        yield from counted(_taken(bundle, work, store, settings, refs))


def _taken(
    bundle: Bundle, work: Fetch, store: Store, settings: Settings, refs: Sequence[str]
) -> Iterator[Record]:
    """What is taken, after what its images name and it has not; pages are told of by their refs."""
    for digest, kind in bundle.absent.items():
        if kind not in (PAGE_MEDIA_TYPE, TOKENS_MEDIA_TYPE, oci.MANIFEST, oci.ENVELOPE):
            yield _absent(digest, kind)
    yield from take(work, store, settings, refs or None, "bundle")
    if not bundle.has_pages and work.fetched:
        settings.report.notice(
            "no ref was moved: this bundle has no pages, so that only what is attested was taken"
        )


def _place(path: Path) -> Place:
    return Place(NAME, str(path), DEFAULT_CODEC, is_tracked=False)
