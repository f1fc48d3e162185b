"""An index that somebody wrote into hides nothing that the log says, and makes nothing up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kvg.digest import Digest, raw_of
from kvg.errors import Corrupt, KvgError, Untrusted
from kvg.objects.statement import TestResult, encode_test_result
from kvg.signing.dsse import sign_envelope
from kvg.store import RefMove, Store
from kvg.store import tables as t
from kvg.store.lmdb_file import open_file
from kvg.store.tables import WritableTables
from kvg.store.vouching import vouch, vouch_all
from kvg.trust.policy import Revocation, sign_trust
from kvg.verify import Finding, check_store, verify_artifact
from tests import artifacts as a


def forge(store: Store, change: Callable[[WritableTables], None]) -> Store:
    """The store, opened anew after ``change`` was made to its index."""
    with open_file(store.index.folder).writing() as tables:
        change(tables)
    store.close()
    return Store.open(store.root.parent)


def without_last(table: str) -> Callable[[WritableTables], None]:
    def change(tables: WritableTables) -> None:
        *_, (key, _value) = tables.scan(table)
        tables.delete(table, key)

    return change


def said_failed(folder: Path) -> tuple[Store, Digest]:
    """An artifact of which a trusted key says that its replay failed."""
    store, key = a.make_store(folder)
    made = a.deposit(store, key)
    bob = a.key_of("bob")
    store.set_trust(sign_trust(store.trust.with_key(bob.public, ["verifier"]), [key]))
    said = encode_test_result(made.digest, TestResult("FAILED", "replay"))
    with store.pending() as pending:
        envelope = pending.put(sign_envelope(said, [bob])).digest
        store.record(made.digest, [envelope], now=a.NOW)
    return store, made.digest


def problems(store: Store) -> list[Finding]:
    return [found for found in check_store(store) if isinstance(found, Finding)]


def test_a_statement_that_was_taken_out_of_the_index_counts(tmp_path: Path) -> None:
    store, digest = said_failed(tmp_path)
    assert [found.code for found in problems(store)] == [6]
    for look in (lambda s: verify_artifact(s, digest, ref="demo"), problems):
        store = forge(store, without_last(t.ATTESTATIONS))
        assert len(store.attestations(digest)) == 1
        try:
            found = look(store)
        except Untrusted as error:
            assert "replay failed" in error.message
        else:
            assert [item.code for item in found] == [6]  # type: ignore[union-attr]
        assert len(store.attestations(digest)) == 2


def test_a_revocation_that_was_taken_out_counts(tmp_path: Path) -> None:
    store, alice = a.make_store(tmp_path)
    made = a.deposit(store, alice)
    bob = a.key_of("bob")
    before = store.trust.with_key(bob.public, ["publisher"])
    store.set_trust(sign_trust(before, [alice]))
    older = (store.root / "trust.json").read_bytes()
    revoked = Revocation(alice.public.keyid, store.log.origin, 0)
    store.set_trust(sign_trust(store.trust.with_revocation(revoked), [bob]))
    with pytest.raises(Untrusted, match="revoked"):
        verify_artifact(store, made.digest)
    (store.root / "trust.json").write_bytes(older)
    for table in (t.TRUST, t.REVOKED):
        store = forge(store, without_last(table))
        with pytest.raises(Untrusted, match="revoked"):
            verify_artifact(store, made.digest)


def test_a_ref_that_was_turned_back_is_seen(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    old = a.deposit(store, key, ref="a", ids=range(9)).digest
    new = a.deposit(store, key, ref="b", ids=range(20, 40)).digest
    store.publish([RefMove("a", new)], now=a.NOW)

    def turn_back(tables: WritableTables) -> None:
        value = tables.get(t.REFS, b"a")
        assert value is not None and value.endswith(raw_of(new))
        tables.put(t.REFS, b"a", value[:-32] + raw_of(old))

    store = forge(store, turn_back)
    assert store.ref("a") == old
    with pytest.raises(Corrupt, match="a: the index said"):
        verify_artifact(store, old, ref="a")
    assert store.ref("a") == new and verify_artifact(store, new, ref="a").digest == new
    store = forge(store, turn_back)
    *found, _ = check_store(store, [("a", store.refs()["a"])])
    assert [(item.object, item.code) for item in found] == [("a", 5)]  # type: ignore[union-attr]
    store = forge(store, turn_back)
    assert problems(store) == [] and store.ref("a") == new


def test_an_honest_index_is_left_as_it_is(tmp_path: Path) -> None:
    store, digest = said_failed(tmp_path)
    store.publish([RefMove("ab", digest), RefMove("demo", None)], now=a.NOW)
    store.publish([RefMove("demo", digest)], now=a.NOW)
    store.index.remember(b"k" * 32, b"v")
    for name in ("more", "again"):
        vouch(store, digest, ref="demo")
        vouch(store, digest, ref="ab")
        vouch(store, digest, ref="sha256:abc")
        vouch_all(store)
        assert store.index.recall(b"k" * 32) == b"v"
        assert store.index.is_vouched(store.log)
        store.publish([RefMove(name, digest)], now=a.NOW)
        assert not store.index.is_vouched(store.log)


def test_a_log_whose_entries_were_changed_is_not_believed(tmp_path: Path) -> None:
    store, digest = said_failed(tmp_path)
    bundle = max((store.root / "log/tile/entries").rglob("*.p/*"), key=lambda p: int(p.name))
    data = bundle.read_bytes()
    bundle.chmod(0o644)
    bundle.write_bytes(data.replace(b'"type":"attestation"', b'"type":"attestatiom"'))
    store.close()
    with pytest.raises(KvgError, match="leaf"):
        vouch(Store.open(tmp_path), digest)
