"""The other remotes of a store, asked for what the one that is meant lacks or has damaged.

Whatever they give is checked against its digest as everything is. One that can't be reached, or is
none, is not asked again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

from kvg.errors import Corrupt, Incompatible, NotFound, RemoteFailed, UsageError
from kvg.flow.exchange.places import SECTION, find_place, opened

if TYPE_CHECKING:
    from types import TracebackType

    from kvg.flow.exchange.places import Place
    from kvg.flow.settings import Settings
    from kvg.remote import Remote
    from kvg.store import Store

GIVES_NOTHING = (Corrupt, Incompatible, NotFound, RemoteFailed, UsageError)
"""What keeps a remote from giving an object."""


class Elsewhere:
    """Every remote of ``store`` but ``place``; opened when it is first asked. Safe for threads."""

    def __init__(self, store: Store, settings: Settings, place: Place) -> None:
        self._store = store
        self._settings = settings
        self._place = place
        names = store.config.names(SECTION) if place.is_tracked else ()
        self._names = [name for name in sorted(names) if name != place.name]
        self._open: dict[str, Remote] = {}
        self._gave: dict[str, int] = {}
        self._guard = threading.Lock()
        self._stack = ExitStack()

    def __enter__(self) -> Elsewhere:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def remotes(self) -> Iterator[tuple[str, Remote]]:
        """Each, by its name."""
        for name in tuple(self._names):
            try:
                yield name, self._opened(name)
            except GIVES_NOTHING:
                self.drop(name)

    def _opened(self, name: str) -> Remote:
        with self._guard:
            if name not in self._open:
                place = find_place(self._store, name)
                self._open[name] = self._stack.enter_context(opened(place, self._settings))
            return self._open[name]

    def drop(self, name: str) -> None:
        """Ask ``name`` no more."""
        with self._guard:
            self._names = [item for item in self._names if item != name]

    def note(self, name: str) -> None:
        """``name`` gave an object."""
        with self._guard:
            self._gave[name] = self._gave.get(name, 0) + 1

    def tell(self) -> None:
        """Say what came from where, and what mends the remote that was meant."""
        for name, count in sorted(self._gave.items()):
            self._settings.report.warning(
                f"{count} objects that {self._place.name} lacks or has damaged came from {name}; "
                f"to mend it: kvg push {self._place.name} --verify"
            )
        self._gave = {}
