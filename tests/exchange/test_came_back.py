"""What went and was passed over by a reindex is found again once it is fetched again."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvg.digest import Digest
from kvg.flow.fsck import fsck
from kvg.flow.gc import gc
from kvg.flow.records import Finding
from kvg.flow.reindex import reindex
from kvg.store import Store
from kvg.store.objects import ObjectFolder
from tests.exchange.conftest import Person


@pytest.fixture
def shared(alice: Person, bob: Person, share: Path) -> Digest:
    """Alice pushed, and Bob has it from there."""
    digest = alice.deposit("demo", range(40))
    alice.push()
    bob.clone(share, alice)
    assert faults(bob) == [] and is_found(bob.store, digest)
    return digest


def faults(person: Person) -> list[Finding]:
    return [item for item in fsck(person.store, person.settings) if isinstance(item, Finding)]


def is_found(store: Store, digest: Digest) -> bool:
    """Whether a deposit of the same text, and of one that begins so, would find it."""
    made = store.manifest(digest)
    key = (made.model.fingerprint, made.engine.fingerprint, made.layout.page_tokens)
    prefixes = store.find_prefix(*key, store.ids(made, what="demo"))
    return store.find_tokens(*key, made.tokens.digest) == (digest,) and (40, digest) in prefixes


def test_what_gc_took_is_found_again(bob: Person, shared: Digest) -> None:
    for name in ("demo", "origin/demo"):
        bob.store.set_ref(name, None)
    gc(bob.store, bob.settings)
    reindex(bob.store)
    assert not bob.store.objects.has(shared)
    bob.pull()
    assert faults(bob) == []
    assert is_found(bob.store, shared)


def lose(store: Store, digest: Digest) -> None:
    """Its manifest and its token ids are lost, and a reindex passes it over."""
    tokens = store.manifest(digest).tokens.digest
    for gone in (digest, tokens):
        store.objects.stored_path(gone).unlink()
    reindex(store)


def test_what_was_lost_is_found_again(bob: Person, shared: Digest) -> None:
    """The log names it all the time: nothing is added to it."""
    lose(bob.store, shared)
    size = bob.store.log.size
    assert bob.fetch().codes == []
    assert bob.store.log.size == size
    assert faults(bob) == []
    assert is_found(bob.store, shared)


def test_a_fetch_that_was_cut_short_is_made_good_by_the_next(
    bob: Person, shared: Digest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended when its objects had come, and the next finds them all there."""
    lose(bob.store, shared)
    adopt = ObjectFolder.adopt

    def cut_short(folder: ObjectFolder, *rest: object) -> None:
        adopt(folder, *rest)
        if folder.has(shared):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ObjectFolder, "adopt", cut_short)
        bob.fetch()
    assert bob.store.objects.has(shared)
    bob.fetch()
    assert faults(bob) == []
    assert is_found(bob.store, shared)


def test_what_a_repair_fetched_is_found_again(bob: Person, shared: Digest) -> None:
    lose(bob.store, shared)
    for _ in range(2):  # only the manifest says which token ids are missing
        tuple(fsck(bob.store, bob.settings, repair=True))
    assert faults(bob) == []
    assert is_found(bob.store, shared)
