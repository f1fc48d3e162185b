"""Named bytes at one place: what a remote that is made of plain files is built on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kvg.digest import Buffer

PIECE_BYTES = 1 << 20
"""The most bytes of one piece of a stream."""


class Files(Protocol):
    """One place with files. Names were checked by ``layout.check_name``. Safe for threads.

    Raises ``RemoteFailed`` when the place can't be reached or refuses.
    """

    @property
    def url(self) -> str:
        """Its address, without credentials."""

    @property
    def is_writable(self) -> bool:
        """Whether ``write``, ``swap`` can work."""

    def read(self, name: str, limit: int) -> bytes | None:
        """The bytes of ``name``, at most ``limit`` + 1 of them; None when there is no such file."""

    def stream(self, name: str, *, start: int, limit: int) -> Iterator[bytes]:
        """``name`` from byte ``start`` on, ``limit`` bytes at most, in pieces of up to 1 MiB.

        Raises ``NotFound``.
        """

    def size(self, name: str) -> int | None:
        """How many bytes ``name`` has; None when there is no such file."""

    def write(self, name: str, parts: Sequence[Buffer]) -> None:
        """Write or replace ``name``: seen whole or not at all, durable when this returns."""

    def swap(self, name: str, data: bytes | None, *, expect: bytes | None) -> None:
        """Replace (None: remove) ``name`` in one step if it holds ``expect`` (None: no file).

        Raises ``Conflict``.
        """

    def names(self, folder: str) -> Sequence[str] | None:
        """Every file below ``folder``, relative to it, ascending; None where none can list."""

    def close(self) -> None:
        """Close what is open."""
