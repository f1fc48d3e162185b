"""Removing an artifact from a registry: what shows it first, then every blob only it uses.

Once its tags are gone nothing there says what it was made of. So that a removal which was cut is
gone on with, an image manifest under ``_kvg.forget.<digest>`` lists its blobs until all are gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kvg.digest import Digest, hex_of
from kvg.frozen import frozen
from kvg.remote import oci
from kvg.remote.registry import FORGET_TAG

if TYPE_CHECKING:
    from kvg.remote.oci import Descriptor, Image
    from kvg.remote.registry import RegistryRemote


@frozen
class Done:
    """What went. ``kept`` are blobs that other tags need, ``refused`` those that it won't delete.

    Digests are those of blobs.
    """

    objects: int
    bytes: int
    kept: tuple[tuple[Digest, tuple[str, ...]], ...]
    refused: tuple[Digest, ...]


def forget_artifact(
    remote: RegistryRemote, digest: Digest, names: Sequence[str], *, dry_run: bool
) -> Done:
    """Remove the refs ``names``, which stand for the artifact ``digest``, and its blobs.

    Raises ``RemoteFailed`` where the registry deletes no manifests; then all of it stays.
    """
    tag = f"{FORGET_TAG}{hex_of(digest)}"
    note = remote.image(tag, oci.FORGETTING)
    looked = [remote.tagged(name) for name in names]
    shown = [found for found in looked if found and found.image.config.digest == digest]
    attesting = [item for found in shown for item in remote.referring(found.digest)]
    blobs = tuple(
        _distinct([*([note] if note else []), *(t.image for t in shown), *_images(attesting)])
    )
    if not blobs:
        return Done(0, 0, (), ())
    users = remote.users_of_blobs(besides=frozenset(found.digest for found in shown))
    kept = tuple((item.digest, users[item.digest]) for item in blobs if item.digest in users)
    going = [item for item in blobs if item.digest not in users]
    if dry_run:
        return Done(len(going), sum(item.size for item in going), kept, ())
    if shown:
        config = next(item for item in blobs if item.digest == digest)
        others = tuple(item for item in blobs if item != config)
        remote.put_image(tag, oci.Image(oci.FORGETTING, config, others))
    for manifest in (*(item for item, _ in attesting), *(found.digest for found in shown)):
        remote.delete_image(manifest)
    refused = tuple(item.digest for item in going if not remote.delete_blob(item.digest))
    if not refused:
        remote.delete_tag(tag)
    left = frozenset(refused)
    gone = [item for item in going if item.digest not in left]
    return Done(len(gone), sum(item.size for item in gone), kept, refused)


def is_left(remote: RegistryRemote, digest: Digest) -> bool:
    """Whether the artifact's manifest lies there still."""
    return remote.has_blob(digest)


def _images(found: Sequence[tuple[Digest, Image]]) -> list[Image]:
    return [image for _, image in found]


def _distinct(images: Sequence[Image]) -> Iterator[Descriptor]:
    """Every blob of ``images``, each once, but for the empty one."""
    seen: set[Digest] = set()
    for image in images:
        for item in (*image.layers, image.config):
            if item.digest not in seen and item.media_type != oci.EMPTY:
                seen.add(item.digest)
                yield item
