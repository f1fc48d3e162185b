"""Artifacts as OCI documents: image manifests, descriptors and indexes.

An artifact is an image manifest of ``ARTIFACT``: its config is the kvg manifest as it stands, its
layers are token ids and pages in stored form, each with the digest of its raw bytes under
``dev.kvg.digest``. What is attested, logs and keys on offer are image manifests of their own.

Reading is by OCI's rules: what is not known is passed over. https://github.com/opencontainers/
image-spec/blob/v1.1.0/manifest.md
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kvg import canon
from kvg.canon import Json
from kvg.digest import Digest, is_digest, sha256
from kvg.errors import Corrupt
from kvg.frozen import frozen

INDEX: Final = "application/vnd.oci.image.index.v1+json"
IMAGE: Final = "application/vnd.oci.image.manifest.v1+json"
EMPTY: Final = "application/vnd.oci.empty.v1+json"
EMPTY_BYTES: Final = b"{}"

ARTIFACT: Final = "application/vnd.kvg.artifact.v1"
ATTESTATION: Final = "application/vnd.kvg.attestation.v1"
LOG: Final = "application/vnd.kvg.log.v1"
KEYS: Final = "application/vnd.kvg.keys.v1"
TURN: Final = "application/vnd.kvg.turn.v1"
FORGETTING: Final = "application/vnd.kvg.forgetting.v1"
REMOVED: Final = "application/vnd.kvg.removed.v1"

MANIFEST: Final = "application/vnd.kvg.manifest.v1+json"
STORED: Final = "application/vnd.kvg.object.v1"
ENVELOPE: Final = "application/vnd.dsse.envelope.v1+json"
RECEIPT: Final = "application/vnd.kvg.receipt.v1"
LOG_FILE: Final = "application/vnd.kvg.log.file.v1"
PUBLIC_KEY: Final = "application/vnd.kvg.public-key.v1"

RAW_DIGEST: Final = "dev.kvg.digest"
REF: Final = "dev.kvg.ref"
ORIGIN: Final = "dev.kvg.origin"
POSITION: Final = "dev.kvg.index"
PAGES: Final = "dev.kvg.pages"
TITLE: Final = "org.opencontainers.image.title"
TAG: Final = "org.opencontainers.image.ref.name"

MAX_DOCUMENT_BYTES: Final = 64 << 20


@frozen
class Descriptor:
    """What points at a blob: its kind, digest and size, and what is said of it."""

    media_type: str
    digest: Digest
    size: int
    annotations: tuple[tuple[str, str], ...] = ()
    artifact_type: str | None = None

    def said(self, name: str) -> str | None:
        """The annotation ``name``."""
        return dict(self.annotations).get(name)

    @property
    def raw(self) -> Digest | None:
        """The digest of the raw bytes of the object in the blob, where one is stated."""
        found = self.said(RAW_DIGEST)
        return found if is_digest(found) else None

    def as_json(self) -> Json:
        """As it stands in a document."""
        value: dict[str, Json] = {
            "mediaType": self.media_type,
            "digest": self.digest,
            "size": self.size,
        }
        if self.artifact_type is not None:
            value["artifactType"] = self.artifact_type
        if self.annotations:
            value["annotations"] = dict(self.annotations)
        return value


@frozen
class Image:
    """An image manifest."""

    artifact_type: str
    config: Descriptor
    layers: tuple[Descriptor, ...]
    subject: Descriptor | None = None
    annotations: tuple[tuple[str, str], ...] = ()


def describe(
    data: bytes, media_type: str, *, artifact_type: str | None = None, **said: str
) -> Descriptor:
    """The descriptor of the blob ``data``; ``said`` are annotations, by constant's name."""
    names = {"raw": RAW_DIGEST, "title": TITLE, "origin": ORIGIN}
    notes = tuple(sorted((names[key], value) for key, value in said.items()))
    return Descriptor(media_type, sha256(data), len(data), notes, artifact_type)


def encode_image(image: Image) -> bytes:
    """The bytes of an image manifest."""
    value: dict[str, Json] = {
        "schemaVersion": 2,
        "mediaType": IMAGE,
        "artifactType": image.artifact_type,
        "config": image.config.as_json(),
        "layers": [layer.as_json() for layer in image.layers],
    }
    if image.subject is not None:
        value["subject"] = image.subject.as_json()
    if image.annotations:
        value["annotations"] = dict(image.annotations)
    return canon.encode(value)


def encode_index(manifests: Sequence[Descriptor]) -> bytes:
    """The bytes of an image index."""
    return canon.encode(
        {
            "schemaVersion": 2,
            "mediaType": INDEX,
            "manifests": [item.as_json() for item in manifests],
        }
    )


def parse_index(data: bytes, *, what: str) -> tuple[Descriptor, ...]:
    """The descriptors of an image index. Raises ``Corrupt``."""
    value = _object(canon.parse_json(data, what=what), what)
    return _descriptors(value.get("manifests"), what)


def parse_image(data: bytes, *, what: str) -> Image:
    """The untrusted image manifest in ``data``. Raises ``Corrupt``."""
    value = _object(canon.parse_json(data, what=what), what)
    kind, subject = value.get("artifactType"), value.get("subject")
    return Image(
        kind if isinstance(kind, str) else "",
        _descriptor(value.get("config"), what),
        _descriptors(value.get("layers"), what),
        None if subject is None else _descriptor(subject, what),
        _annotations(value.get("annotations"), what),
    )


def _descriptors(value: Json, what: str) -> tuple[Descriptor, ...]:
    return tuple(_descriptor(item, what) for item in canon.as_list(value, what=what))


def _descriptor(value: Json, what: str) -> Descriptor:
    found = _object(value, what)
    digest, kind = found.get("digest"), found.get("artifactType")
    if not is_digest(digest):
        raise Corrupt(f"{what}: descriptor without a sha256 digest")
    return Descriptor(
        canon.as_str(found.get("mediaType"), what=f"{what}: mediaType"),
        digest,
        canon.as_int(found.get("size"), what=f"{what}: size"),
        _annotations(found.get("annotations"), what),
        kind if isinstance(kind, str) else None,
    )


def _annotations(value: Json, what: str) -> tuple[tuple[str, str], ...]:
    if value is None:
        return ()
    found = _object(value, what)
    return tuple(
        sorted((key, canon.as_str(item, what=f"{what}: annotation")) for key, item in found.items())
    )


def _object(value: Json, what: str) -> Mapping[str, Json]:
    if not isinstance(value, Mapping):
        raise Corrupt(f"{what}: not an object")
    return value
