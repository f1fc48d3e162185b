"""A remote in a container registry: ``oci://HOST/REPOSITORY``.

    tag of a ref (its ``/`` is ``..``)   the image manifest of the artifact: config = the kvg
                                         manifest, layers = token ids and pages in stored form; its
                                         annotations are the pointer
    referrers of that                    attestations, receipts and what they name
    _kvg.log.<origin>                    the files of a publisher's log
    _kvg.keys                            public keys on offer
    _kvg.turn.<32 hex>                   whether a publisher moves tags now: see ``turns``
    _kvg.forget.<digest>                 what is left to remove of an artifact that is forgotten

A registry replaces a tag without a condition. Publishers take turns instead, and what a tag is is
looked at just before and just after.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kvg import codec as kvz
from kvg.digest import Digest, sha256, short
from kvg.errors import Conflict, Corrupt, NotFound, RemoteFailed
from kvg.frozen import frozen
from kvg.remote import layout, oci
from kvg.remote.distribution import MAX_TAG_CHARS, Fetched, Registry, fallback_tag
from kvg.remote.files import ASKERS, PIECE_BYTES, at_once
from kvg.remote.registry_log import (
    LOG_TAG,
    RegistryLog,
    document,
    empty,
    put_image,
    tagged_image,
)
from kvg.remote.turns import Removals, Turn

if TYPE_CHECKING:
    from kvg.digest import Buffer
    from kvg.remote.access import Access
    from kvg.remote.layout import Expected, Pointer
    from kvg.remote.oci import Descriptor, Image

KEYS_TAG: Final = "_kvg.keys"
FORGET_TAG: Final = "_kvg.forget."
MAX_KEPT_BYTES: Final = 256 << 20
"""Of all manifests at one place of which something is kept: those of some 10,000 artifacts."""

_FALLBACK: Final = r"sha256-[0-9a-f]{64}"


@frozen
class Held:
    """What an artifact consists of there: every blob of it is up."""

    config: Descriptor
    layers: tuple[Descriptor, ...]
    attestations: tuple[Descriptor, ...]


@frozen
class Tagged:
    """An artifact's image manifest under a tag."""

    image: Image
    digest: Digest


class RegistryRemote:
    """See ``Remote``. Artifacts are put by ``put_blob``, ``hold`` and then ``move``."""

    is_writable = True
    keeps_folders = False
    puts_in_turn = False

    def __init__(self, url: str, access: Access) -> None:
        """Raises ``UsageError`` on an address that is none."""
        self._registry = Registry(url, access)
        self._guard = threading.RLock()
        self._objects: dict[Digest, tuple[Descriptor, bool]] = {}
        self._held: dict[Digest, Held] = {}
        self._tagged: dict[str, Tagged | None] = {}
        self._listed: tuple[str, ...] = ()
        """Every tag, as ``check`` saw them."""
        self._just_seen: set[str] = set()
        """Tags that were looked at to tell which there are, and not asked for since."""
        self._kept_bytes = 0
        """Of the manifests of which something is kept."""
        self._is_read = False
        self._reading = threading.Lock()
        self._asked: set[Digest] = set()
        self._last: Digest | None = None
        self._up: set[Digest] = set()
        """Blobs that were seen there, or put."""
        self._logs: dict[str, RegistryLog] = {}
        self._turn: Turn | None = None
        self._removals: Removals | None = None

    @property
    def url(self) -> str:
        return self._registry.url

    def check_ref(self, name: str) -> None:
        tag_of(name, self.url)

    def check(self) -> None:
        self._listed = self._tags()
        if not any(tag.startswith("_kvg.") for tag in self._listed):
            raise NotFound(f"{self.url}: no remote there", hint="kvg push makes one")

    def store_log(self) -> None:
        return None

    def make(self) -> None:
        return None  # a repository is there as soon as something is pushed to it

    def missing(self, digests: Sequence[Digest]) -> frozenset[Digest]:
        return frozenset(self._unknown(digests, everywhere=self._last is None))

    def get(self, digest: Digest, *, start: int = 0, limit: int) -> Iterator[bytes]:
        found = None if self._unknown([digest]) else self._known(digest)
        if found is None:
            raise NotFound(f"{self.url}: object {short(digest)}: not there")
        layer, is_raw = found
        if layer.media_type == oci.MANIFEST:
            self._last = digest
        if not is_raw:
            yield from self._registry.blob(layer.digest, start=start, limit=limit)
            return
        raw = self.document(layer)
        stored = b"".join(kvz.encode(raw, digest=digest, codec=kvz.ZSTD).parts())
        stop = min(len(stored), start + limit)
        for at in range(start, stop, PIECE_BYTES):
            yield stored[at : min(at + PIECE_BYTES, stop)]

    def put(self, digest: Digest, parts: Iterable[Buffer]) -> None:
        raise RemoteFailed(f"{self.url}: a registry holds artifacts, not single objects")

    def put_blob(self, digest: Digest, parts: Sequence[Buffer], *, again: bool = False) -> bool:
        """Put a blob unless it is there (``again``: also then); whether it was put."""
        is_new = again or not (digest in self._up or self._registry.has_blob(digest))
        if is_new:
            self._registry.put_blob(digest, parts)
        self._up.add(digest)
        return is_new

    def blob_is_good(self, digest: Digest, size: int) -> bool:
        """Whether the bytes of a blob there have the digest that it is named by."""
        from kvg.digest import Sha256Stream

        stream = Sha256Stream()
        try:
            for piece in self._registry.blob(digest, start=0, limit=size + 1):
                stream.update(piece)
        except NotFound:
            return False
        return stream.digest() == digest

    def hold(self, held: Held) -> None:
        """Note what an artifact consists of; ``move`` then makes it visible."""
        with self._guard:
            self._held[held.config.digest] = held

    def origins(self) -> tuple[str, ...]:
        found = (tag.removeprefix(LOG_TAG) for tag in self._tags() if tag.startswith(LOG_TAG))
        return tuple(origin for origin in found if layout.is_origin(origin))

    def log(self, origin: str) -> RegistryLog:
        if not layout.is_origin(origin):
            raise Corrupt(f"{self.url}: {origin[:80]!r} is no log")
        with self._guard:
            return self._logs.setdefault(origin, RegistryLog(self._registry, origin))

    def refs(self) -> tuple[str, ...]:
        self._read_tags()
        with self._guard:
            found = [tag for tag, tagged in self._tagged.items() if tagged is not None]
        return tuple(sorted(tag.replace("..", "/") for tag in found))

    def pointer(self, name: str) -> Pointer | None:
        return self._pointer(self._look(tag_of(name, self.url)))

    def _pointer(self, tagged: Tagged | None) -> Pointer | None:
        found = self._standing(tagged)
        if isinstance(found, layout.MalformedPointer):
            raise found
        return found

    def pointers(self, names: Sequence[str]) -> Mapping[str, Pointer | Corrupt | None]:
        def read(name: str) -> Pointer | Corrupt | None:
            tag = tag_of(name, self.url)
            with self._guard:
                is_seen = tag in self._just_seen
                self._just_seen.discard(tag)
            try:
                return self._pointer(self._tagged[tag] if is_seen else self._look(tag))
            except Corrupt as error:
                return error

        return dict(zip(names, at_once(read, names, askers=ASKERS), strict=True))

    def move(
        self,
        name: str,
        pointer: Pointer | None,
        *,
        expect: Expected,
        value: Digest | None = None,
    ) -> None:
        tag = tag_of(name, self.url)
        self._take_turn()
        if pointer is None:
            self._take_off(name, tag, expect)
            return
        held = self._held.get(value) if value is not None else None
        if held is None:
            raise RemoteFailed(f"{self.url}: {name}: its artifact was not put")
        data = oci.encode_image(_image(name, pointer, held))
        self._attest(held, oci.describe(data, oci.IMAGE, artifact_type=oci.ARTIFACT), data)
        self._expected(name, tag, expect)
        self._registry.put_manifest(tag, data, oci.IMAGE)
        if (now := self._look(tag)) is None or now.digest != sha256(data):
            raise self._moved(name)

    def _take_off(self, name: str, tag: str, expect: Expected) -> None:
        there = self._expected(name, tag, expect)
        if there is not None:
            self._untag(tag)
            self._tagged.pop(tag, None)

    def _untag(self, tag: str) -> None:
        """Take a tag off; what it stood for keeps its other tags, which may be anybody's.

        Many registries delete manifests alone, with all their tags: there the tag is first put on a
        manifest of its own, once it was seen that such a one is deleted.
        """
        if self._registry.delete_tag(tag) and self._registry.manifest(tag) is None:
            return
        self.put_blob(empty().digest, [oci.EMPTY_BYTES])
        said = ((oci.REF, tag), (oci.POSITION, os.urandom(8).hex()))
        data = oci.encode_image(oci.Image(oci.REMOVED, empty(), (empty(),), annotations=said))
        for reference in (sha256(data), tag):
            self._registry.put_manifest(reference, data, oci.IMAGE)
            self._registry.delete_manifest(sha256(data))

    def _expected(self, name: str, tag: str, expect: Expected) -> Tagged | None:
        """What is under ``tag`` now. Raises ``Conflict`` unless it is what is expected."""
        there = self._look(tag)
        if not _is_same(self._standing(there), expect):
            raise self._moved(name)
        return there

    def offers(self) -> Mapping[str, str]:
        image = self._image(KEYS_TAG, oci.KEYS)
        found: dict[str, str] = {}
        layers = () if image is None else image.layers
        layout.check_keys(len(layers), what=self.url)
        for layer in layers:
            keyid, _, kind = (layer.said(oci.TITLE) or "").rpartition(".")
            data = self.document(layer, layout.MAX_KEY_BYTES)
            if kind == "pub" and data.isascii():
                found[keyid] = data.decode("ascii")
        return found

    def offer(self, keyid: str, text: str) -> None:
        title, data = f"{keyid}.pub", text.encode("ascii")
        layout.check_name(title, what=self.url)
        layer = oci.describe(data, oci.PUBLIC_KEY, title=title)
        if layer in self._keys():
            return
        self._take_turn()
        known = self._keys()
        self.put_blob(layer.digest, [data])
        others = tuple(item for item in known if item.said(oci.TITLE) != title)
        put_image(self._registry, KEYS_TAG, oci.Image(oci.KEYS, empty(), (*others, layer)))

    def _keys(self) -> tuple[Descriptor, ...]:
        image = self._image(KEYS_TAG, oci.KEYS)
        return () if image is None else image.layers

    def announce(self, origin: str) -> None:
        """A registry collects by its own rules: what is announced is who moves tags."""
        self._turn = Turn(self._registry, origin)
        self._removals = Removals(self._registry)

    def renew(self, origin: str) -> None:
        if self._turn is not None:
            self._turn.renew()

    def withdraw(self, origin: str) -> None:
        if self._turn is not None:
            self._turn.end()

    def _take_turn(self) -> None:
        if self._turn is not None and self._turn.take() and self._removals is not None:
            self._removals.check()

    @contextmanager
    def removing(self, origin: str) -> Iterator[None]:
        """Nobody moves tags meanwhile, and whoever relies on what is there now learns of it."""
        self.announce(origin)
        try:
            self._take_turn()
            marks = Removals(self._registry)
            marks.note(is_over=False)
            try:
                yield
            finally:
                marks.note(is_over=True)
        finally:
            self.withdraw(origin)

    def publish_listing(self) -> None:
        return None  # tags can be listed

    def close(self) -> None:
        self._registry.close()

    def document(self, layer: Descriptor, limit: int = oci.MAX_DOCUMENT_BYTES) -> bytes:
        """A small blob, its digest checked. Raises ``Corrupt``."""
        return document(self._registry, layer, limit)

    def tagged(self, name: str) -> Tagged | None:
        """The artifact's image manifest under the ref ``name``, as it is now."""
        return self._look(tag_of(name, self.url))

    def referring(self, subject: Digest) -> list[tuple[Digest, Image]]:
        """What is attested of an image manifest: the manifests that refer to it."""
        found: list[tuple[Digest, Image]] = []
        for item in self._registry.referrers(subject):
            fetched = self._registry.manifest(item.digest)
            if fetched is None:
                continue
            image = oci.parse_image(fetched.data, what=f"{self.url}: {short(item.digest)}")
            if image.artifact_type == oci.ATTESTATION:
                self._keep(fetched)
                found.append((fetched.digest, image))
        return found

    def image(self, tag: str, kind: str) -> Image | None:
        """The image manifest of kind ``kind`` under ``tag``. Raises ``Corrupt`` on another kind."""
        return self._image(tag, kind)

    def put_image(self, tag: str, image: Image) -> None:
        """Put an image manifest whose blobs are there under ``tag``."""
        self._registry.put_manifest(tag, oci.encode_image(image), oci.IMAGE)

    def delete_tag(self, tag: str) -> None:
        """Delete the image manifest under ``tag``; again is harmless."""
        found = self._registry.manifest(tag)
        if found is not None:
            self._registry.delete_manifest(found.digest)

    def delete_image(self, digest: Digest) -> None:
        """Delete an image manifest, its tags, and what it is named by as a subject."""
        self._registry.delete_manifest(digest)
        listed = self._registry.manifest(fallback_tag(digest))
        if listed is not None:
            self._registry.delete_manifest(listed.digest)
        with self._guard:
            self._tagged = {t: f for t, f in self._tagged.items() if f and f.digest != digest}

    def has_blob(self, digest: Digest) -> bool:
        """Whether a blob is there."""
        return self._registry.has_blob(digest)

    def delete_blob(self, digest: Digest) -> bool:
        """Delete a blob; whether it is gone."""
        return self._registry.delete_blob(digest)

    def users_of_blobs(self, *, besides: frozenset[Digest]) -> dict[Digest, tuple[str, ...]]:
        """Which tags need which blob, also by what refers to them; ``besides``: not these."""
        users: dict[Digest, set[str]] = {}
        for tag in self._tags():
            fetched = self._registry.manifest(tag)
            if fetched is None or fetched.digest in besides or tag.startswith(FORGET_TAG):
                continue
            try:
                image = oci.parse_image(fetched.data, what=f"{self.url}: {tag}")
            except Corrupt:
                continue  # an index: what it lists has no blobs of its own
            self._keep(fetched)
            for one in (image, *(found for _, found in self.referring(fetched.digest))):
                for layer in (one.config, *one.layers):
                    users.setdefault(layer.digest, set()).add(tag.replace("..", "/"))
        return {digest: tuple(sorted(found)) for digest, found in users.items()}

    def _moved(self, name: str) -> Conflict:
        return Conflict(f"{name}: moved on {self.url} meanwhile", hint="kvg pull, then push again")

    def _standing(self, tagged: Tagged | None) -> Expected:
        """What a tag's image manifest points at; one that is malformed is known by its digest."""
        if tagged is None:
            return None
        notes = dict(tagged.image.annotations)
        position = _position(tagged)
        try:
            if position is None:
                raise Corrupt("no position")
            return layout.Pointer(notes.get(oci.ORIGIN, ""), position)
        except Corrupt as error:
            return layout.MalformedPointer(
                f"{self.url}: a ref without a pointer: {error.message}",
                tagged.digest.encode("ascii"),
            )

    def _look(self, tag: str) -> Tagged | None:
        """What is under ``tag`` now: an artifact, or None where there is none of kvg's."""
        found = self._registry.manifest(tag)
        tagged = None if found is None else self._parsed(tag, found)
        with self._guard:
            before = self._tagged.get(tag)
            self._tagged[tag] = tagged
            if tagged is not None and (before is None or before.digest != tagged.digest):
                self._keep(found)
                self._learn(tagged.image)
        return tagged

    def _keep(self, found: Fetched | None) -> None:
        """Count what is kept of a manifest. Raises ``Corrupt`` where all take too much memory."""
        with self._guard:
            self._kept_bytes += 0 if found is None else len(found.data)
            if self._kept_bytes > MAX_KEPT_BYTES:
                raise Corrupt(f"{self.url}: manifests of more than {MAX_KEPT_BYTES:,} bytes")

    def _parsed(self, tag: str, found: Fetched) -> Tagged | None:
        try:
            image = oci.parse_image(found.data, what=f"{self.url}: {tag}")
        except Corrupt:
            return None  # an index, or another program's: none of kvg's
        return Tagged(image, found.digest) if image.artifact_type == oci.ARTIFACT else None

    def _learn(self, image: Image) -> None:
        self._objects[image.config.digest] = (image.config, True)
        for layer in image.layers:
            if layer.raw is not None:
                self._objects[layer.raw] = (layer, layer.media_type == oci.ENVELOPE)

    def _known(self, digest: Digest) -> tuple[Descriptor, bool] | None:
        with self._guard:
            return self._objects.get(digest)

    def _tags(self) -> tuple[str, ...]:
        return self._registry.tags() or ()

    def _unknown(self, digests: Sequence[Digest], *, everywhere: bool = True) -> list[Digest]:
        """Those of ``digests`` of which nothing is known, once as much was asked as it takes.

        ``everywhere``: also of what is attested of other artifacts than that asked for last, which
        has all its own objects beside it.
        """
        unknown = [digest for digest in digests if self._known(digest) is None]
        for ask in (self._read_tags, self._ask_of_the_last, self._ask_of_all):
            if unknown and (everywhere or ask != self._ask_of_all):
                ask()
                unknown = [digest for digest in unknown if self._known(digest) is None]
        return unknown

    def _read_tags(self) -> None:
        """Look at every tag, once; who comes second waits."""
        with self._reading:
            if self._is_read:
                return
            wanted = [tag for tag in self._listed or self._tags() if is_ref_tag(tag)]
            unseen = [tag for tag in wanted if tag not in self._tagged]
            at_once(self._look, unseen, askers=ASKERS)
            self._just_seen.update(unseen)
            self._is_read = True

    def _ask_of_the_last(self) -> None:
        """What is attested of the artifact whose manifest was asked for last, as it was put last:
        nearly always that is where the next objects are."""
        with self._guard:
            own = [t for t in self._tagged.values() if t and t.image.config.digest == self._last]
        self._ask_of([item.digest for item in sorted(own, key=lambda t: _position(t) or 0)[-1:]])

    def _ask_of_all(self) -> None:
        with self._guard:
            subjects = [tagged.digest for tagged in self._tagged.values() if tagged is not None]
        self._ask_of(subjects)

    def _ask_of(self, subjects: Sequence[Digest]) -> None:
        """Learn what refers to ``subjects``, of each once; who comes second waits."""
        with self._reading:
            new = [subject for subject in subjects if subject not in self._asked]
            at_once(self._learn_referrers, new, askers=ASKERS)
            self._asked.update(new)

    def _learn_referrers(self, subject: Digest) -> None:
        for item in self._registry.referrers(subject):
            found = self._registry.manifest(item.digest)
            if found is None:
                continue
            image = oci.parse_image(found.data, what=f"{self.url}: {short(item.digest)}")
            if image.artifact_type != oci.ATTESTATION:
                continue
            self._keep(found)
            with self._guard:
                for layer in image.layers:
                    if layer.raw is not None:
                        is_raw = layer.media_type == oci.ENVELOPE
                        self._objects.setdefault(layer.raw, (layer, is_raw))

    def _image(self, tag: str, kind: str) -> Image | None:
        return tagged_image(self._registry, tag, kind)

    def _attest(self, held: Held, subject: Descriptor, data: bytes) -> None:
        """Put what is attested of an artifact as its referrer, before the tag shows it."""
        if not held.attestations:
            return
        self.put_blob(empty().digest, [oci.EMPTY_BYTES])
        self._registry.put_manifest(subject.digest, data, oci.IMAGE)
        image = oci.Image(oci.ATTESTATION, empty(), held.attestations, subject)
        made = oci.encode_image(image)
        said = oci.describe(made, oci.IMAGE, artifact_type=oci.ATTESTATION)
        if not self._registry.put_manifest(said.digest, made, oci.IMAGE):
            self._registry.refer(subject.digest, said)


def _position(tagged: Tagged) -> int | None:
    """The entry that a tag's image manifest says to be of; None where it says none."""
    digits = dict(tagged.image.annotations).get(oci.POSITION, "")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 16 else None


def _is_same(found: Expected, expected: Expected) -> bool:
    if isinstance(found, layout.MalformedPointer):
        return isinstance(expected, layout.MalformedPointer) and found.data == expected.data
    return found == expected


def tag_of(name: str, what: str) -> str:
    """The tag of a ref. Raises ``Corrupt`` on names that are none, ``Conflict`` on those that no
    tag can have."""
    layout.check_name(f"{layout.REFS}/{name}", what=what)
    tag = name.replace("/", "..")
    if len(tag) > MAX_TAG_CHARS or not is_ref_tag(tag):
        raise Conflict(
            f"{name}: can't be a tag of a registry",
            hint=f"kvg mv {'-- ' if name.startswith('-') else ''}{name} OTHER",
        )
    return tag


def is_ref_tag(tag: str) -> bool:
    """Whether a tag can be that of a ref."""
    is_name = layout.is_name(f"{layout.REFS}/{tag.replace('..', '/')}")
    return is_name and tag[0] not in "_.-" and re.fullmatch(_FALLBACK, tag) is None


def _image(name: str, pointer: Pointer, held: Held) -> Image:
    notes = {oci.REF: name, oci.ORIGIN: pointer.origin, oci.POSITION: str(pointer.index)}
    return oci.Image(
        oci.ARTIFACT, held.config, held.layers, annotations=tuple(sorted(notes.items()))
    )
