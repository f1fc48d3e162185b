"""The protocol of a remote: what every place that stores exchange through promises."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kvg.digest import Buffer, Digest
    from kvg.errors import Corrupt
    from kvg.remote.layout import Expected, Pointer, StoreLog


class LogFiles(Protocol):
    """The static files of one publisher's log; a ``kvg.log.tiles.TileSource`` for its readers."""

    def read(self, name: str, limit: int) -> bytes | None:
        """The bytes of ``name``, at most ``limit`` + 1 of them; None when there is no such file."""

    def widths(self, name: str) -> Sequence[int]:
        """The widths of the partial tiles of ``name`` that are there, ascending.

        None are told where the place can't list; a reader then asks for the ones that it expects.
        """

    def write(self, name: str, data: bytes) -> None:
        """Write a tile, whole or not at all. Only the log's owner does."""

    def swap(self, name: str, data: bytes, *, expect: bytes | None) -> None:
        """Replace ``name`` in one step if it holds ``expect`` (None: if there is none).

        Raises ``Conflict``.
        """


class Remote(Protocol):
    """One remote. Safe to use by several threads at once.

    Whatever it gives is untrusted: a caller checks objects against their digests, logs against
    signed checkpoints, pointers against logs. Every method raises ``RemoteFailed`` when the place
    can't be reached or refuses, ``NoSpace`` where it is full, and ``Corrupt`` on names that can't
    be a remote's; a retry is harmless after any of them.
    """

    @property
    def url(self) -> str:
        """Its address as shown to people: without credentials."""

    @property
    def is_writable(self) -> bool:
        """Whether this kind of remote can be pushed to."""

    @property
    def puts_in_turn(self) -> bool:
        """Whether ``put`` is done with each part before it asks for the next.

        Then nothing comes of an object whose parts end with a failure, which ``put`` raises.
        """

    @property
    def keeps_folders(self) -> bool:
        """Whether refs are files there, so that none can have the name of another's folder."""

    def check_ref(self, name: str) -> None:
        """Raise ``Conflict`` where no ref of this name can be kept there."""

    def check(self) -> None:
        """Raise ``NotFound`` where there is no remote, ``Incompatible`` for another format."""

    def store_log(self) -> StoreLog | None:
        """The log of the store that this place is; None where it is nothing but a remote.

        It is the word of the place, and guards against mistakes only.
        """

    def make(self) -> None:
        """Make the place a remote; again is harmless."""

    def missing(self, digests: Sequence[Digest]) -> frozenset[Digest]:
        """Those of ``digests`` whose object is not there, or not as long as its header says.

        Few round trips for many digests. An object that is there may still be damaged.
        """

    def get(self, digest: Digest, *, start: int = 0, limit: int) -> Iterator[bytes]:
        """The stored form of an object from byte ``start`` on, in pieces, ``limit`` bytes at most.

        Raises ``NotFound`` when it is not there. A piece is never larger than 1 MiB, so that a
        caller stops a body that has no end.
        """

    def put(self, digest: Digest, parts: Iterable[Buffer]) -> None:
        """Store an object's stored form: visible only once it is whole and its bytes are durable.

        That it is there is durable before a log or a pointer that is written later. Putting it
        again is harmless, also at the same time: names are digests.
        """

    def origins(self) -> tuple[str, ...]:
        """The logs that are there, ascending."""

    def log(self, origin: str) -> LogFiles:
        """The files of one log, there or not."""

    def refs(self) -> tuple[str, ...]:
        """The names that have a pointer, ascending."""

    def pointer(self, name: str) -> Pointer | None:
        """The pointer of ``name``; None when there is none. Raises ``Corrupt``."""

    def pointers(self, names: Sequence[str]) -> Mapping[str, Pointer | Corrupt | None]:
        """As ``pointer``, for many names in few round trips; a malformed one is its own failure."""

    def move(
        self,
        name: str,
        pointer: Pointer | None,
        *,
        expect: Expected,
        value: Digest | None = None,
    ) -> None:
        """Set (or with None remove) a pointer in one step, if it is ``expect`` now.

        A ``MalformedPointer`` that ``pointers`` told of may be replaced, too.

        Of two at once one wins; the other gets ``Conflict``, and nothing of it is seen. ``value``
        is the artifact that the pointer stands for, for places whose names name it.
        """

    def offers(self) -> Mapping[str, str]:
        """Public keys by key id: offers that say nothing of whether to trust them."""

    def offer(self, keyid: str, text: str) -> None:
        """Offer a public key; again is harmless."""

    def announce(self, origin: str) -> None:
        """Say that the owner of the log ``origin`` pushes: what it relies on is not removed.

        Raises ``Conflict`` while somebody removes what nothing needs.
        """

    def renew(self, origin: str) -> None:
        """Say so again, in other bytes: who watches sees that the push is alive.

        Raises ``Conflict`` where it was taken for dead, so that what it relies on may be gone.
        """

    def withdraw(self, origin: str) -> None:
        """The push of ``origin`` has ended; again is harmless."""

    def publish_listing(self) -> None:
        """Bring up to date what readers go by where they can't list. Call it after the pointers."""

    def close(self) -> None:
        """Close what is open."""
