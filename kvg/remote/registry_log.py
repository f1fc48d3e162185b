"""The log of one publisher in a container registry, and the small documents that lie there.

The files of a log are the layers of one image manifest, which is replaced as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kvg.digest import sha256, short
from kvg.errors import Conflict, Corrupt, UsageError
from kvg.remote import layout, oci
from kvg.remote.distribution import MAX_TAG_CHARS

if TYPE_CHECKING:
    from kvg.remote.distribution import Registry
    from kvg.remote.oci import Descriptor, Image

LOG_TAG: Final = "_kvg.log."
_HEADS: Final = (layout.CHECKPOINT, layout.VERIFIER, layout.PUBLISHER, layout.COSIGNED)


class RegistryLog:
    """See ``LogFiles``: the layers of one image manifest, which is replaced as a whole.

    What is written is seen with the next checkpoint.
    """

    def __init__(self, registry: Registry, origin: str) -> None:
        self._registry = registry
        self._origin = origin
        self._image: Image | None = None
        self._new: dict[str, Descriptor] = {}

    @property
    def _tag(self) -> str:
        tag = LOG_TAG + self._origin
        if len(tag) > MAX_TAG_CHARS:
            raise UsageError(f"log {self._origin[:80]}: its name is too long for a registry")
        return tag

    def read(self, name: str, limit: int) -> bytes | None:
        self._check_name(name)
        if self._image is None or name == layout.CHECKPOINT:  # what is beside it goes with it
            self._image = tagged_image(self._registry, self._tag, oci.LOG)
        layer = self._layers().get(name)
        if layer is None:
            return None
        return document(self._registry, layer, oci.MAX_DOCUMENT_BYTES)[: limit + 1]

    def widths(self, name: str) -> Sequence[int]:
        prefix = f"{name}.p/"
        found = (key.removeprefix(prefix) for key in self._layers() if key.startswith(prefix))
        return sorted(int(text) for text in found if re.fullmatch(r"[1-9][0-9]{0,2}", text))

    def write(self, name: str, data: bytes) -> None:
        self._check_name(name)
        self._new[name] = self._put(name, data)
        if name in _HEADS and layout.CHECKPOINT in self._layers():
            self._publish()

    def swap(self, name: str, data: bytes, *, expect: bytes | None) -> None:
        self._check_name(name)
        self._image = tagged_image(self._registry, self._tag, oci.LOG)
        there = self._layers().get(name)
        found = None if there is None else document(self._registry, there, len(expect or b"") + 1)
        if found != expect:
            raise Conflict(f"{self!r}: changed meanwhile")
        self._new[name] = self._put(name, data)
        self._publish()

    def _publish(self) -> None:
        kept = {**self._layers(), **self._new}
        wider = {name: _width(name) for name in self._new if ".p/" in name}
        layers = {
            name: layer
            for name, layer in kept.items()
            if not any(
                _stem(name) == _stem(other) and ".p/" in name and _width(name) < width
                for other, width in wider.items()
            )
            and not (".p/" in name and _stem(name) in self._new)
        }
        image = oci.Image(
            oci.LOG,
            empty(),
            tuple(layers[name] for name in sorted(layers)),
            annotations=((oci.ORIGIN, self._origin),),
        )
        put_image(self._registry, self._tag, image)
        self._image = image
        self._new.clear()

    def _put(self, name: str, data: bytes) -> Descriptor:
        layer = oci.describe(data, oci.LOG_FILE, title=name)
        if not self._registry.has_blob(layer.digest):
            self._registry.put_blob(layer.digest, [data])
        return layer

    def _layers(self) -> dict[str, Descriptor]:
        image = self._image
        return {} if image is None else {l.said(oci.TITLE) or "": l for l in image.layers}  # noqa: E741

    def _check_name(self, name: str) -> None:
        layout.check_name(f"{layout.LOGS}/{self._origin}/{name}", what=self._registry.url)

    def __repr__(self) -> str:
        return f"{self._registry.url}: log {self._origin}"


def tagged_image(registry: Registry, tag: str, kind: str) -> Image | None:
    found = registry.manifest(tag)
    if found is None:
        return None
    what = f"{registry.url}: {tag}"
    image = oci.parse_image(found.data, what=what)
    if image.artifact_type != kind:
        raise Corrupt(f"{what}: is {image.artifact_type[:80]!r}, not {kind}")
    return image


def put_image(registry: Registry, tag: str, image: Image) -> None:
    if not registry.has_blob(image.config.digest):
        registry.put_blob(image.config.digest, [oci.EMPTY_BYTES])
    registry.put_manifest(tag, oci.encode_image(image), oci.IMAGE)


def document(registry: Registry, layer: Descriptor, limit: int) -> bytes:
    data = b"".join(registry.blob(layer.digest, start=0, limit=min(limit, layer.size) + 1))
    if sha256(data) != layer.digest:
        raise Corrupt(f"{registry.url}: blob {short(layer.digest)} is damaged or too large")
    return data


def empty() -> Descriptor:
    return oci.describe(oci.EMPTY_BYTES, oci.EMPTY)


def _stem(name: str) -> str:
    return name.partition(".p/")[0]


def _width(name: str) -> int:
    text = name.rpartition("/")[2]
    return int(text) if text.isdigit() else 0
