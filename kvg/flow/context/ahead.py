"""The next block asked of the system before it is wanted: its files, into the system's own cache.

Nothing is read into this process, decoded or kept ahead, so memory stays as it is; the block is
verified when it is grafted, like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvg.flow.context.stored import StoredBlock
    from kvg.store import Store


def read_ahead(store: Store, blocks: Iterable[StoredBlock]) -> None:
    """Have the system fetch the pages of ``blocks``; what is not there is found when it is used."""
    for block in blocks:
        for page in store.manifest(block.digest, what=block.ref).pages:
            store.objects.read_ahead(page.digest)
