"""The stored form of an object that is written as it comes.

It lies beside a folder's objects under a name that is none of theirs. A kill leaves it there; what
is found in it is checked frame by frame before it is used.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kvg import durable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kvg.digest import Buffer


class Part:
    """The file of one part. Nothing is there before something is written; nothing is synced."""

    def __init__(self, path: Path, begun: int = 0) -> None:
        """``begun``: how many bytes of what is there already are good."""
        self.path = path
        self.size = begun
        self._fd: int | None = None

    @property
    def fd(self) -> int:
        """The open file."""
        if self._fd is None:
            durable.make_dir(self.path.parent, is_named_for_good=False)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
            with durable.translated(self.path):
                self._fd = durable.plain(os.fspath(self.path), flags, 0o600)
        return self._fd

    def add(self, pieces: Sequence[Buffer]) -> None:
        """Write ``pieces`` after what is good. Raises ``NoSpace``."""
        with durable.translated(self.path):
            os.lseek(self.fd, self.size, os.SEEK_SET)
            self.size += durable.write_all(self.fd, pieces, self.path)

    def stage(self, path: Path, *, mode: int) -> durable.Staged:
        """What was written, about to be ``path``: from here on it is no more of this part."""
        with durable.translated(self.path):
            durable.step("chmod", self.path)
            os.fchmod(self.fd, durable.mode_of(path, mode))
        durable.make_dir(path.parent, is_named_for_good=False)
        fd, self._fd = self.fd, None
        return durable.Staged(path, self.path, fd, self.size)

    def keep(self) -> None:
        """Leave what was written, and nothing after it, to be gone on with."""
        if self._fd is not None:
            with durable.translated(self.path):
                os.ftruncate(self._fd, self.size)
        self.close()

    def remove(self) -> None:
        """Take it away; again is harmless."""
        self.close()
        if self.path.exists():
            durable.remove(self.path)

    def close(self) -> None:
        """Close the file; again is harmless."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
