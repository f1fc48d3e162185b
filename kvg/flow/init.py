"""``kvg init``."""

from __future__ import annotations

from pathlib import Path

from kvg.flow.records.stores import Initialised
from kvg.flow.settings import STORE_FOLDER, Settings, keyring_of


def init(settings: Settings, path: Path | None, *, bare: bool, shared: bool = False) -> Initialised:
    """Make a store in ``path`` (None: the settings' store, else the current folder).

    Again is harmless. ``shared`` lets the group of the folder read and write it. Raises
    ``Incompatible`` where a store of another format version is.
    """
    from kvg.store.store import Store

    folder = settings.cwd / (path or settings.store_path or Path())
    root = folder if bare else folder / STORE_FOLDER
    created = not (root / "format").exists()
    shown = root.relative_to(settings.cwd) if root.is_relative_to(settings.cwd) else root
    if created and settings.tell_dry_run():
        return Initialised(str(shown), created, bare, None, shared)
    store = Store.init(
        folder,
        bare=bare,
        shared=shared,
        keyring=keyring_of(settings),
        lock_wait=settings.lock_wait,
        report=settings.report,
    )
    return Initialised(str(shown), created, bare, store.log.origin, store.is_shared)
