"""The one way to a ``Verified``: every check that needs no page and no model, each time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kvg.digest import Digest, short
from kvg.errors import Corrupt, NotFound
from kvg.objects.manifest import Page, check_sizes
from kvg.objects.verified import Verified, _seal
from kvg.verify.judgement import Judgement, judge, required_gates
from kvg.verify.traced import said_under

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from kvg.codec import PieceReader
    from kvg.store import Store


def verify_artifact(
    store: Store, digest: Digest, *, require: Sequence[str] = (), ref: str | None = None
) -> Verified:
    """The artifact ``digest``, after checking, in this order:

    - the log's checkpoint is signed by the log's key, and the trust file is the one it names;
    - the manifest's bytes have the digest and are exactly one valid manifest;
    - the token ids have their digest and their count, and every page has the size of its shape;
    - enough trusted keys signed statements about it that the log holds, and none says it failed;
    - the store's required gates and those of ``require`` passed.

    Pages are **not** read here: ``Verified.read_page`` checks each one as it is loaded. That the
    pages hold what the model computes is **not** checked: only a replay shows that.
    ``ref`` is the name to use in messages; under that of a text's trace counts what was said of
    that very text (``said_under``). Raises ``NotFound``, ``Corrupt``, ``Untrusted``,
    ``Incompatible``.
    """
    return _verified(store, digest, require, ref, Judgement.check_signed)


def verify_to_replay(store: Store, digest: Digest, *, ref: str | None = None) -> Verified:
    """As ``verify_artifact``, for a run that is itself to say whether the pages are true.

    So it neither asks for the verifiers that are still needed nor heeds a replay that failed. What
    it gives is not for answering from.
    """
    return _verified(store, digest, (), ref, Judgement.check_replayable)


def _verified(
    store: Store,
    digest: Digest,
    require: Sequence[str],
    ref: str | None,
    check: Callable[..., None],
) -> Verified:
    from kvg.store.vouching import vouch

    vouch(store, digest, ref=ref)
    trust, what = store.trust, ref or short(digest)
    if not store.objects.has(digest):
        if digest in store.forgotten():
            raise NotFound(f"{what}: its content was removed with kvg forget")
        raise Corrupt(f"{what}: object {short(digest)} missing", hint="kvg fsck")
    manifest = store.manifest(digest, what=what)
    check_sizes(manifest, what=what)
    ids = tuple(store.ids(manifest, what=what))
    judgement = judge(store, digest, what=what)
    check(judgement, trust, what=what)
    if ref is not None:
        judgement = said_under(ref, judgement, trust)
        check(judgement, trust, what=what)
    judgement.check_required(required_gates(store, require), what=what)

    def named(page: Page) -> str:
        """What messages call ``page``, once it is here."""
        if store.is_partial and not store.objects.has(page.digest):
            store.supply(manifest, what)
        return f"{what}: page {page.group} [{page.start}, {page.end})"

    def load_page(page: Page) -> memoryview:
        return store.objects.read(page.digest, size=page.size, what=named(page), check_digest=False)

    def open_page(page: Page) -> AbstractContextManager[PieceReader]:
        return store.objects.open_pieces(page.digest, size=page.size, what=named(page))

    return Verified(
        _seal,
        digest=digest,
        manifest=manifest,
        ids=ids,
        signers=judgement.depositors,
        gates=judgement.gates,
        provenance=judgement.provenance,
        load_page=load_page,
        open_page=open_page,
    )
