"""``kvg cat``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvg.digest import Digest

if TYPE_CHECKING:
    from kvg.store import Store


def cat(store: Store, target: str) -> tuple[Digest, memoryview]:
    """The raw bytes of the object ``target`` (a ref means its manifest), their digest checked.

    Raises ``NotFound``, ``Corrupt``.
    """
    digest = store.resolve(target).digest
    return digest, store.objects.read(digest, what=target)
