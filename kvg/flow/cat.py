"""``kvg cat``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvg.digest import PREFIX, Digest, short
from kvg.errors import NotFound
from kvg.store.names import parse_digest_prefix

if TYPE_CHECKING:
    from kvg.store import Store


def cat(store: Store, target: str) -> tuple[Digest, memoryview]:
    """The raw bytes of the object ``target`` (a ref means its manifest), their digest checked.

    A page that a remote keeps until it is read is brought, with the others of its artifact. Raises
    ``NotFound``, ``Corrupt``, ``RemoteFailed``.
    """
    try:
        digest = store.resolve(target).digest
    except NotFound as error:
        digest = _brought(store, target, error)
    return digest, store.objects.read(digest, what=target)


def _brought(store: Store, target: str, error: NotFound) -> Digest:
    """The page that ``target`` means, brought here. Raises ``error`` where it is none."""
    digits = parse_digest_prefix(target) if store.is_partial else None
    for artifact in store.artifacts() if digits is not None else ():
        manifest = store.manifest(artifact)
        if any(page.digest.startswith(f"{PREFIX}{digits}") for page in manifest.pages):
            store.supply(manifest, short(artifact))
            return store.resolve(target).digest
    raise error
