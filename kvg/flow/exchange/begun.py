"""What a push has begun to bring, so that the next one can tell what an earlier try left there.

A note under ``tmp``, one digest a line, for each remote; gone once a push has ended. It decides
nothing: what is there is asked of the remote.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kvg import durable
from kvg.digest import Digest, is_digest
from kvg.errors import Corrupt, NotFound

if TYPE_CHECKING:
    from kvg.flow.exchange.places import Place
    from kvg.store import Store

FOLDER: Final = "pushes"
MAX_NOTE_BYTES: Final = 64 << 20


class Begun:
    """The note of one remote. Use it while holding ``store.exchange``."""

    def __init__(self, store: Store, place: Place) -> None:
        self._path = store.staging / FOLDER / place.name
        self.earlier = self._read()
        """What an earlier push, which did not end, was to bring."""

    def _read(self) -> frozenset[Digest]:
        try:
            with durable.translated(self._path), open(self._path, "rb", opener=durable.plain) as f:
                lines = f.read(MAX_NOTE_BYTES).decode("ascii", "replace").splitlines()
        except (NotFound, Corrupt):
            return frozenset()
        return frozenset(line for line in lines if is_digest(line))

    def add(self, digests: Iterable[Digest]) -> None:
        """These are to go now. Not synced: a note that is lost is no more than a lower count."""
        lines = "".join(f"{digest}\n" for digest in digests if digest not in self.earlier)
        if not lines:
            return
        durable.make_dir(self._path.parent, is_named_for_good=False)
        with durable.translated(self._path):
            fd = durable.plain(str(self._path), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            try:
                durable.write_all(fd, [lines.encode("ascii")], self._path)
            finally:
                os.close(fd)

    def end(self) -> None:
        """The push has ended: nothing is left of it."""
        if self._path.exists():
            durable.remove(self._path)
