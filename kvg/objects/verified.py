"""The sealed value that says an artifact was verified: made by ``kvg.verify``, taken by graft."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, final

from kvg.digest import Blake3Stream, Buffer, Digest, blake3_hex
from kvg.errors import Corrupt
from kvg.objects.manifest import Group, Manifest, Page
from kvg.objects.page import check_page, page_header, page_size
from kvg.objects.statement import Provenance

if TYPE_CHECKING:
    from kvg.buffers import Buffers

Join = Callable[[Sequence[memoryview], bytearray | memoryview, int], None]
"""Puts the bytes of planes in turn into the first so many bytes of a buffer."""


class Reader(Protocol):
    """The raw bytes of a page, exactly as many as it was opened for."""

    def pieces(
        self,
        join: Join | None = None,
        *,
        first: int = 0,
        most: int = 0,
        buffers: Buffers | None = None,
    ) -> Iterator[memoryview]:
        """All of them in order. Each view is good until the next one. Raises ``Corrupt``.

        The first has ``first`` bytes, the others ``most`` or what is left of a frame.
        """


def _no_reader(page: Page) -> AbstractContextManager[Reader | None]:
    """For artifacts whose pages are read whole."""
    return nullcontext(None)


def give_checked(
    reader: Reader,
    page: Page,
    group: Group,
    put: Callable[[memoryview], None],
    *,
    what: str,
    join: Join | None = None,
    most: int = 0,
    buffers: Buffers | None = None,
) -> None:
    """Give ``put`` the data region of ``page``, ``most`` bytes at once, from first to last.

    Size, BLAKE3 and header are checked of the very bytes that ``put`` is given: each piece is read,
    decoded by ``join`` where it is in byte planes, hashed, and given. ``buffers`` are used for
    that. Raises ``Corrupt`` naming ``what``; then what was given is of no worth.
    """
    head = page_header(group, page.n_tokens)
    if page.size != page_size(group, page.n_tokens):
        raise Corrupt(f"{what}: {page.size} bytes are not those of its shape", hint="kvg fsck")
    stream, n_bytes = Blake3Stream(), 0
    for piece in reader.pieces(join, first=len(head), most=most, buffers=buffers):
        stream.update(piece)
        n_head = max(0, min(len(head) - n_bytes, piece.nbytes))
        if piece[:n_head] != head[n_bytes : n_bytes + n_head]:
            raise Corrupt(f"{what}: its header is not that of its shape", hint="kvg fsck")
        put(piece[n_head:])
        n_bytes += piece.nbytes
    if n_bytes != page.size or stream.digest().hex() != page.blake3:
        raise Corrupt(f"{what}: bytes do not match their BLAKE3", hint="kvg fsck")


_seal: Final = object()
"""Proof of the right to say 'verified'. ``kvg.verify`` alone imports it."""


@final
class Verified:
    """An artifact that passed integrity, authenticity and policy; its pages as they are read.

    Holding one is the proof: it cannot be made without the seal, copied, pickled or changed. It
    does **not** say that the pages hold what the model computes: only a replay does.

    ``ids`` are all the token ids, ``signers`` the key ids that met the depositor's threshold,
    ``gates`` the names of the gates that trusted keys saw pass.
    """

    __slots__ = (
        "_load",
        "_open",
        "_pages",
        "digest",
        "gates",
        "ids",
        "manifest",
        "provenance",
        "signers",
    )

    digest: Digest
    manifest: Manifest
    ids: tuple[int, ...]
    signers: tuple[str, ...]
    gates: tuple[str, ...]
    provenance: Provenance | None
    _load: Callable[[Page], Buffer]
    _open: Callable[[Page], AbstractContextManager[Reader | None]]
    _pages: frozenset[Page]

    def __init__(
        self,
        seal: object,
        *,
        digest: Digest,
        manifest: Manifest,
        ids: tuple[int, ...],
        signers: tuple[str, ...],
        gates: tuple[str, ...],
        provenance: Provenance | None,
        load_page: Callable[[Page], Buffer],
        open_page: Callable[[Page], AbstractContextManager[Reader | None]] = _no_reader,
    ) -> None:
        """``load_page`` gives a page's raw bytes, unchecked: ``read_page`` checks them.

        ``open_page`` gives them piece by piece, unchecked too, or None where it can't.
        """
        if seal is not _seal:
            raise TypeError("Verified is made by kvg.verify only")
        set_field = object.__setattr__
        set_field(self, "digest", digest)
        set_field(self, "manifest", manifest)
        set_field(self, "ids", ids)
        set_field(self, "signers", signers)
        set_field(self, "gates", gates)
        set_field(self, "provenance", provenance)
        set_field(self, "_load", load_page)
        set_field(self, "_open", open_page)
        set_field(self, "_pages", frozenset(manifest.pages))

    def read_page(self, page: Page) -> memoryview:
        """The raw bytes of ``page``, checked now: size, BLAKE3 and header.

        The view may share the reader's memory; it is not to be written. Raises ``Corrupt``
        naming the page, also for a page of another manifest.
        """
        what = self._named(page)
        raw = memoryview(self._load(page)).cast("B")
        if raw.nbytes != page.size:
            raise Corrupt(f"{what}: {raw.nbytes} bytes, expected {page.size}", hint="kvg fsck")
        if blake3_hex(raw) != page.blake3:
            raise Corrupt(f"{what}: bytes do not match their BLAKE3", hint="kvg fsck")
        check_page(raw, self.manifest.group(page.group), page.n_tokens, what=what)
        return raw

    def give_page(
        self,
        page: Page,
        put: Callable[[memoryview], None],
        *,
        join: Join | None = None,
        most: int = 0,
        buffers: Buffers | None = None,
    ) -> bool:
        """Give ``put`` the data region of ``page``, as ``give_checked`` does.

        False, before anything is given, for a page that can only be read whole: ``read_page``
        that. Raises ``Corrupt`` naming the page; then what was given is of no worth.
        """
        what, group = self._named(page), self.manifest.group(page.group)
        with self._open(page) as reader:
            if reader is None:
                return False
            give_checked(reader, page, group, put, what=what, join=join, most=most, buffers=buffers)
        return True

    def _named(self, page: Page) -> str:
        """What messages call ``page``. Raises ``Corrupt`` for one of another manifest."""
        if page not in self._pages:
            raise Corrupt(f"page {page.digest}: not a page of {self.digest}")
        return f"page {page.digest}"

    def __repr__(self) -> str:
        return f"Verified({self.digest})"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"Verified is frozen: {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"Verified is frozen: {name}")

    def __reduce__(self) -> NoReturn:
        raise TypeError("Verified is not copied or stored: verify again")
