from __future__ import annotations

import os
from pathlib import Path

import pytest

from kvg.digest import sha256
from kvg.errors import Conflict, Corrupt, Incompatible, NotFound, Untrusted, UsageError
from kvg.log.entry import AttestationEntry, PreregEntry, RefEntry
from kvg.objects.manifest import Manifest
from kvg.store import ANY, RefMove, Store
from kvg.store.pending import live_roots, remove_dead
from tests import artifacts as a


def test_init_again_is_harmless(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    again = Store.init(tmp_path, keyring=a.make_keyring(tmp_path))
    assert again.log.origin == store.log.origin
    assert again.refs() == {"demo": made.digest}


def test_a_folder_whose_name_is_no_text(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path / os.fsdecode(b"\xff"))
    made = a.deposit(store, key)
    again = Store.open(store.root)
    assert again.refs() == {"demo": made.digest}


def test_an_interrupted_init_is_finished(tmp_path: Path) -> None:
    store, _ = a.make_store(tmp_path)
    (store.root / "format").unlink()
    with pytest.raises(Corrupt, match="format: missing"):
        Store.open(tmp_path)
    again = Store.init(tmp_path, keyring=a.make_keyring(tmp_path))
    assert again.log.origin == store.log.origin


def test_where_a_store_is_found(tmp_path: Path) -> None:
    keyring = a.make_keyring(tmp_path)
    Store.init(tmp_path / "a", keyring=keyring)
    Store.init(tmp_path / "b", keyring=keyring, bare=True)
    deep = tmp_path / "a" / "x" / "y"
    deep.mkdir(parents=True)
    assert Store.find(deep).root == tmp_path / "a" / ".kvg"
    assert Store.open(tmp_path / "a").root == tmp_path / "a" / ".kvg"
    assert Store.find(tmp_path / "b").root == tmp_path / "b"
    assert Store.find(tmp_path / "b" / "objects").root == tmp_path / "b"
    with pytest.raises(NotFound, match="no store") as error:
        Store.find(tmp_path)
    assert error.value.hint == "kvg init"


def test_other_formats(tmp_path: Path) -> None:
    store, _ = a.make_store(tmp_path)
    path = store.root / "format"
    path.write_bytes(b"kvg-store 2\n")
    with pytest.raises(Incompatible, match="kvg-store 2"):
        Store.open(tmp_path)
    path.write_bytes(b"something else\n")
    with pytest.raises(Corrupt):
        Store.open(tmp_path)


def test_keys_and_logs_lie_outside(tmp_path: Path) -> None:
    store, _ = a.make_store(tmp_path)
    names = [name for _, _, names in os.walk(store.root) for name in names]
    assert not [name for name in names if name.endswith(".pem")]


def test_a_deposit_that_is_there_changes_nothing(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    first = a.deposit(store, key)
    again = a.deposit(store, key)
    assert again.digest == first.digest and again.new_objects == 0
    assert again.published.entries == () and again.published.size == first.published.size
    assert first.published.index_of(first.envelopes[0]) == 1
    assert again.published.index_of(first.envelopes[0]) is None


def test_history_and_the_past(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    one = a.deposit(store, key, ids=range(10)).digest
    two = a.deposit(store, key, ids=range(20)).digest
    store.set_ref("demo", None)
    store.set_ref("demo", one)
    assert [move.digest for move in store.history("demo")] == [one, None, two, one]
    assert store.resolve("demo").digest == one
    assert store.resolve("demo@{0}").digest == one
    assert store.resolve("demo@{2}").digest == two
    assert store.resolve("demo@{3}").digest == one
    for text in ("demo@{1}", "demo@{4}", "nothing", "demo@{9}"):
        with pytest.raises(NotFound):
            store.resolve(text)
    with pytest.raises(NotFound):
        store.history("nothing")


def test_resolve(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    assert store.resolve("demo").ref == "demo"
    assert store.resolve(made.digest).digest == made.digest
    assert store.resolve(made.digest[7:13]).digest == made.digest
    assert store.resolve(made.digest[7:14]).ref is None
    assert store.resolve(made.manifest.pages[0].digest[:20]).digest == made.manifest.pages[0].digest
    with pytest.raises(NotFound) as error:
        store.resolve("dem")
    assert error.value.hint == "did you mean demo?"
    with pytest.raises(UsageError):
        store.resolve("No Such")
    store.set_ref("abcdef", made.digest)
    assert store.resolve("abcdef").ref == "abcdef"


def test_a_ref_that_moved_is_a_conflict(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    one = a.deposit(store, key, ids=range(10), expect=None).digest
    two = a.deposit(store, key, ids=range(20), ref=None).digest
    size = store.log.size
    for expect in (None, two):
        with pytest.raises(Conflict, match="demo: moved to"):
            store.set_ref("demo", two, expect=expect)
    with pytest.raises(Conflict):
        store.publish([RefEntry(0, "demo", two, None)])
    assert store.log.size == size
    store.set_ref("demo", two, expect=one)
    store.set_ref("demo", two, expect=ANY)
    assert store.log.size == size + 1
    with pytest.raises(Conflict):
        store.set_ref("other", None, expect=two)


def test_who_wants_what_another_has_done_meanwhile_has_it(tmp_path: Path) -> None:
    """Two that store one artifact under one name at once: the second is not refused."""
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key, expect=None)
    size = store.log.size
    assert a.deposit(store, key, expect=None).digest == made.digest
    store.set_ref("demo", made.digest, expect=None)
    assert store.log.size == size and store.ref("demo") == made.digest
    with pytest.raises(Conflict):  # what a log says is not what somebody wants
        store.publish([RefEntry(0, "demo", made.digest, None)])


def test_a_chain_of_moves_in_one_publication(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    one = a.deposit(store, key, ids=range(10)).digest
    two = a.deposit(store, key, ids=range(20), ref=None).digest
    store.publish([RefMove("demo", two, one), RefMove("demo", None, two), RefMove("new", two)])
    assert store.refs() == {"new": two}


def test_nothing_is_logged_whose_object_is_missing(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    size, missing = store.log.size, sha256(b"missing")
    for entry in (
        RefMove("x", missing),
        AttestationEntry(0, missing, made.envelopes[0]),
        AttestationEntry(0, made.digest, missing),
    ):
        with pytest.raises(Corrupt, match="missing"):
            store.publish([RefMove("good", made.digest), entry])
    assert store.log.size == size and "good" not in store.refs()


def test_bad_names_never_reach_the_log(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    with pytest.raises(UsageError):
        RefMove("../x", made.digest)
    with pytest.raises(UsageError):
        store.publish([RefEntry(0, "UPPER", made.digest, None)])


def test_pins_and_preregistrations(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key, ref=None)
    assert made.digest not in store.roots()
    store.set_pin(made.digest, True)
    assert not store.set_pin(made.digest, True).entries
    assert store.pins() == {made.digest} and made.digest in store.roots()
    store.set_pin(made.digest, False)
    assert store.pins() == frozenset()
    store.publish([PreregEntry(0, made.digest)])
    assert store.preregistered() == {made.digest}
    assert store.artifacts() == (made.digest,)


def find(store: Store, manifest: Manifest) -> tuple[str, ...]:
    return store.find_tokens(
        manifest.model.fingerprint,
        manifest.engine.fingerprint,
        manifest.layout.page_tokens,
        manifest.tokens.digest,
        manifest.cuts,
    )


def test_field_k15_an_artifact_is_found_by_all_that_makes_it(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    cut = a.deposit(store, key, ref="cut", cuts=(13,))
    assert find(store, made.manifest) == (made.digest,)
    assert find(store, cut.manifest) == (cut.digest,)
    model, engine = made.manifest.model.fingerprint, made.manifest.engine.fingerprint
    tokens = made.manifest.tokens.digest
    assert store.find_tokens(engine, model, 8, tokens) == ()
    assert store.find_tokens(model, engine, 16, tokens) == ()
    assert store.find_tokens(model, engine, 8, sha256(b"")) == ()


def test_the_longest_beginning_is_found(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    short = a.deposit(store, key, ref="short", ids=range(16))
    long = a.deposit(store, key, ref="long", ids=range(27))
    model, engine = long.manifest.model.fingerprint, long.manifest.engine.fingerprint
    found = store.find_prefix(model, engine, 8, [*range(25), 99, 98])
    assert found[0] == (24, long.digest)
    assert set(found[1:3]) == {(16, long.digest), (16, short.digest)}
    assert store.find_prefix(model, engine, 8, [*range(7), 99]) == ()
    assert store.find_prefix(model, engine, 8, range(7)) == ()


def test_a_cache_that_may_be_lost(tmp_path: Path) -> None:
    store, _ = a.make_store(tmp_path)
    key = ["/models/x", 1, 2, 3]
    assert store.recall(key) is None
    store.remember(key, b"fingerprint")
    assert store.recall(key) == b"fingerprint"
    assert store.recall(["/models/x1", 2, 3]) is None
    store.reindex()
    assert store.recall(key) == b"fingerprint"


def test_field_s09_pending_roots_hold_what_is_new_and_what_is_reused(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    with store.pending() as pending:
        fresh = pending.put(b"fresh").digest
        assert pending.keep(made.digest)
        assert not pending.keep(sha256(b"not there"))
        assert {fresh, made.digest} <= live_roots(store.staging)
        assert fresh in Store.open(tmp_path).roots()
        assert remove_dead(store.staging) == 0
    assert live_roots(store.staging) == frozenset()
    assert list((store.staging / "pending").iterdir()) == []


def test_dead_pending_roots_are_nobodys(tmp_path: Path) -> None:
    store, _ = a.make_store(tmp_path)
    pid = os.fork()
    if pid == 0:
        with store.pending() as pending:
            pending.put(b"lost")
            os._exit(0)
    os.waitpid(pid, 0)
    assert len(list((store.staging / "pending").iterdir())) == 1
    assert live_roots(store.staging) == frozenset()
    assert remove_dead(store.staging) == 1


def test_a_log_that_was_swapped_is_untrusted(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    a.deposit(store, key)
    other, _ = a.make_store(tmp_path / "other")
    os.rename(store.root / "log", tmp_path / "aside")
    os.rename(other.root / "log", store.root / "log")
    with pytest.raises(Untrusted, match="its key is"):
        _ = Store.open(tmp_path, keyring=a.make_keyring(tmp_path)).refs()


def test_a_log_swapped_with_its_pin_is_untrusted_to_its_maker(tmp_path: Path) -> None:
    from kvg.signing.note import encode_verifier

    store, _ = a.make_store(tmp_path)
    store.config.set("store.log", encode_verifier(store.log.origin, a.key_of("m").public))
    with pytest.raises(Untrusted, match="was made with"):
        _ = Store.open(tmp_path, keyring=a.make_keyring(tmp_path)).log


def test_a_log_rolled_back_under_an_open_store_is_untrusted(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    old = (store.root / "log" / "checkpoint").read_bytes()
    a.deposit(store, key)
    (store.root / "log" / "checkpoint").unlink()
    (store.root / "log" / "checkpoint").write_bytes(old)
    with pytest.raises(Untrusted, match="rolled back"):
        store.refs()


def test_without_the_logs_key_nothing_can_be_added(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    stranger = Store.open(tmp_path, keyring=a.make_keyring(tmp_path / "elsewhere"))
    assert stranger.refs() == {"demo": made.digest}
    with pytest.raises(NotFound, match="no key for the log"):
        stranger.set_ref("x", made.digest)
    with pytest.raises(Untrusted):
        store.publish([RefMove("x", made.digest)], key=a.key_of("mallory"))
    assert store.refs() == {"demo": made.digest}


def test_what_another_published_is_seen_though_the_file_looks_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inodes are used again, and the clock of a file system is coarse."""
    store, key = a.make_store(tmp_path)
    other = Store.open(store.root, keyring=store.keyring)
    a.deposit(store, key, ref="demo")
    size, path = other.log.size, store.root / "log" / "checkpoint"
    found, stat = path.stat(), Path.stat

    def same(self: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        return found if self == path else stat(self, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(Path, "stat", same)
    store.set_ref("demo", None)
    assert other.log.size == size + 1
    assert other.ref("demo") is None
