"""A key that is revoked from a position in somebody else's log on: what that log had before counts,
wherever it is judged, and nothing after."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kvg.flow.trust import trust_add, trust_revoke
from kvg.log.entry import AttestationEntry, encode_entry
from kvg.log.log import Log
from kvg.signing.keys import encode_public
from kvg.store import RefMove, Store
from kvg.store.sweep import sweep
from kvg.trust import DEPOSITOR, PUBLISHER, sign_trust
from kvg.verify import check_store
from kvg.verify.findings import Finding
from kvg.verify.positions import index_in
from tests.artifacts import deposit, key_of
from tests.exchange.conftest import Person

FAR = 100


@pytest.fixture
def old(alice: Person, bob: Person, share: Path) -> str:
    """Alice's first deposit, which Bob has cloned; her log's name. Bob has a key of his own."""
    alice.deposit("old")
    alice.push()
    assert not bob.clone(share, alice).findings
    keyid = bob.key.public.keyid
    trust_add(bob.store, bob.settings, keyid, [DEPOSITOR, PUBLISHER], [])
    return alice.store.log.origin


def revoke(alice: Person, bob: Person, origin: str, size: int) -> None:
    keyid = alice.key.public.keyid
    trust_revoke(bob.store, bob.settings, keyid, ["default"], origin=origin, size=size)


def faults(store: Store) -> list[Finding]:
    return [item for item in check_store(store) if isinstance(item, Finding)]


def test_what_that_log_had_before_counts(alice: Person, bob: Person, old: str) -> None:
    revoke(alice, bob, old, FAR)
    assert faults(bob.store) == []
    alice.deposit("more", range(40))
    alice.push()
    assert not bob.pull().findings
    assert faults(bob.store) == [] and bob.store.ref("more") is not None


def test_nothing_after_counts(alice: Person, bob: Person, old: str) -> None:
    revoke(alice, bob, old, alice.store.log.size)
    assert faults(bob.store) == []
    alice.deposit("more", range(40))
    alice.push()
    assert bob.pull().codes == [6]
    assert faults(bob.store) == [] and bob.store.ref("more") is None


def test_what_it_had_later_counts_no_more(alice: Person, bob: Person, old: str) -> None:
    revoke(alice, bob, old, 1)
    (fault,) = faults(bob.store)
    assert fault.code == 6 and "is revoked" in fault.message


def test_what_was_had_counts_where_it_comes_again(alice: Person, bob: Person, share: Path) -> None:
    """By this store's own log, which had it before; the key is a depositor's, who publishes not."""
    carol, store = key_of("carol"), alice.store
    store.trust_first(alice.key)
    store.set_trust(sign_trust(store.trust.with_key(carol.public, [DEPOSITOR]), [alice.key]))
    digest = deposit(alice.store, carol, ref="hers").digest
    alice.push()
    assert set(bob.clone(share, alice).codes) == {6}
    trust_add(bob.store, bob.settings, encode_public(carol.public, "pem", ""), [DEPOSITOR], [])
    assert not bob.pull().findings
    trust_add(bob.store, bob.settings, bob.key.public.keyid, [PUBLISHER], [])
    trust_revoke(bob.store, bob.settings, carol.public.keyid, ["default"])
    assert faults(bob.store) == []
    bob.store.publish([RefMove("hers", None), RefMove("origin/hers", None)])
    assert sweep(bob.store).objects and not bob.store.objects.has(digest)
    assert not bob.pull().findings
    assert faults(bob.store) == [] and bob.store.ref("hers") == digest


@pytest.mark.parametrize("what", ["receipt", "copy", "memory"])
def test_a_position_that_is_not_proved_is_none(
    alice: Person, bob: Person, old: str, what: str
) -> None:
    revoke(alice, bob, old, FAR)
    folder = bob.store.root / "peers" / old
    memory = bob.keyring.peer_path(bob.store.log.origin, old)
    path = {"receipt": folder / "receipts", "copy": folder, "memory": memory}[what]
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert any(item.code == 6 and "is revoked" in item.message for item in faults(bob.store))
    if what == "memory":
        assert not bob.fetch().findings and faults(bob.store) == []


def test_a_log_of_the_same_name_is_not_that_log(
    alice: Person, bob: Person, old: str, tmp_path: Path
) -> None:
    """Who has the key that is revoked may make one, and put it in the store's folder."""
    revoke(alice, bob, old, alice.store.log.size)
    late = alice.deposit("late", range(40))
    envelope = alice.store.attestations(late)[0].envelope
    folder = bob.store.root / "peers" / old
    shutil.rmtree(folder)
    thief = key_of("thief")
    forged = Log.create(folder, origin=old, key=thief, staging=bob.store.staging)
    forged.append([encode_entry(AttestationEntry(0, late, envelope))], thief)
    bob.store.peers.keep_receipts(old, [(envelope, forged.receipt(0))])
    assert index_in(bob.store, late, envelope, old) is None
    assert bob.store.peers.log(old) is not None


def test_pushed_elsewhere_is_no_position_there(alice: Person, bob: Person, old: str) -> None:
    """A log that nobody here has seen says nothing."""
    revoke(alice, bob, "kvg-nobody-knows", FAR)
    assert any("is revoked" in item.message for item in faults(bob.store))
