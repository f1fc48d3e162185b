"""The sealed value that says an artifact was verified: made by ``kvg.verify``, taken by graft."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn, final

from kvg.digest import Buffer, Digest, blake3_hex
from kvg.errors import Corrupt
from kvg.objects.manifest import Manifest, Page
from kvg.objects.page import check_page
from kvg.objects.statement import Provenance

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
    ) -> None:
        """``load_page`` gives a page's raw bytes, unchecked: ``read_page`` checks them."""
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
        set_field(self, "_pages", frozenset(manifest.pages))

    def read_page(self, page: Page) -> memoryview:
        """The raw bytes of ``page``, checked now: size, BLAKE3 and header.

        The view may share the reader's memory; it is not to be written. Raises ``Corrupt``
        naming the page, also for a page of another manifest.
        """
        what = f"page {page.digest}"
        if page not in self._pages:
            raise Corrupt(f"{what}: not a page of {self.digest}")
        raw = memoryview(self._load(page)).cast("B")
        if raw.nbytes != page.size:
            raise Corrupt(f"{what}: {raw.nbytes} bytes, expected {page.size}", hint="kvg fsck")
        if blake3_hex(raw) != page.blake3:
            raise Corrupt(f"{what}: bytes do not match their BLAKE3", hint="kvg fsck")
        check_page(raw, self.manifest.group(page.group), page.n_tokens, what=what)
        return raw

    def __repr__(self) -> str:
        return f"Verified({self.digest})"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"Verified is frozen: {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"Verified is frozen: {name}")

    def __reduce__(self) -> NoReturn:
        raise TypeError("Verified is not copied or stored: verify again")
