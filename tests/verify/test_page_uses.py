"""A page is checked as what its manifest says of it, whatever else its object was found good as."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kvg.digest import Digest
from kvg.log.entry import AttestationEntry
from kvg.objects import manifest as m
from kvg.objects.statement import encode_provenance
from kvg.signing.dsse import sign_envelope
from kvg.store import RefMove, Store
from kvg.verify import Finding, VerifySummary, check_store
from kvg.verify.fsck import FsckSummary, Repaired, fsck
from tests import artifacts as a

Pages = tuple[m.Page, ...]


def first(page: m.Page, pages: Pages) -> Pages:
    return (page, *pages[1:])


def of_group(pages: Pages) -> Pages:
    """The first page's object is that of another group, of the same size."""
    other = next(page for page in pages if page.group != pages[0].group)
    return first(replace(pages[0], digest=other.digest, blake3=other.blake3), pages)


LIES: dict[str, Callable[[a.Made, Pages], Pages]] = {
    "a manifest": lambda made, pages: first(replace(pages[0], digest=made.digest), pages),
    "token ids": lambda made, pages: first(
        replace(pages[0], digest=made.manifest.tokens.digest), pages
    ),
    "an attestation": lambda made, pages: first(replace(pages[0], digest=made.envelopes[0]), pages),
    "a page of another group": lambda _, pages: of_group(pages),
    "another BLAKE3": lambda _, pages: first(replace(pages[0], blake3="0" * 64), pages),
}


@pytest.fixture(params=LIES)
def lying(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Store, Digest]:
    """A store with a good artifact, "a", and "b", whose manifest, rightly signed and logged, calls
    an object of "a" its first page that is something else; its digest."""
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key, ref="a")
    lie = replace(made.manifest, pages=LIES[request.param](made, made.manifest.pages))
    with store.pending() as pending:
        pending.put(m.encode_manifest(lie), digest=lie.digest)
        signed = sign_envelope(encode_provenance(lie.digest, a.provenance()), [key])
        envelope = pending.put(signed).digest
        moves = [AttestationEntry(a.NOW, lie.digest, envelope), RefMove("b", lie.digest)]
        store.publish(moves, now=a.NOW)
    return store, lie.digest


def test_verify_finds_it(lying: tuple[Store, Digest]) -> None:
    store, digest = lying
    for named in (None, [("b", digest)]):
        *found, summary = check_store(store, named)
        assert isinstance(summary, VerifySummary) and not summary.bytes_ok
        assert {item.object for item in found if isinstance(item, Finding)} == {digest}


def test_fsck_finds_it_and_blames_nothing_else(lying: tuple[Store, Digest]) -> None:
    store, digest = lying
    for repair in (False, True):
        *found, summary = fsck(store, repair=repair)
        assert {item.object for item in found if isinstance(item, Finding)} == {digest}
        assert not any(isinstance(item, Repaired) for item in found)
        assert isinstance(summary, FsckSummary)
        assert (summary.artifacts, summary.faults, summary.damaged) == (2, len(found), 0)
        assert summary.objects == sum(1 for _ in store.objects.all())
