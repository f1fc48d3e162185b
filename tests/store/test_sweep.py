from __future__ import annotations

import os
import random
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from kvg import durable
from kvg.digest import Digest, raw_of, sha256, shake256
from kvg.errors import Conflict, Corrupt, NoSpace
from kvg.locking import Lock
from kvg.log.entry import ForgetEntry, PreregEntry
from kvg.objects.statement import (
    Provenance,
    Resource,
    TestResult,
    encode_provenance,
    encode_test_result,
)
from kvg.store import Store
from kvg.store import tables as t
from kvg.store.closure import closure
from kvg.store.lmdb_file import open_file
from kvg.store.marks import Marks
from kvg.store.refs import encode_number
from kvg.store.sweep import Reach, Swept, sweep
from kvg.verify import VerifySummary, check_store, verify_artifact
from tests import artifacts as a


def whole(store: Store, made: a.Made) -> bool:
    artifact = verify_artifact(store, made.digest)
    return all(len(artifact.read_page(page)) for page in made.manifest.pages)


def removed(store: Store, *, dry_run: bool = False) -> int:
    found = sweep(store, dry_run=dry_run)
    assert found.kept == sum(1 for _ in store.objects.all()) - (found.objects if dry_run else 0)
    return found.objects


def test_marks_hold_what_was_added_and_hardly_anything_else() -> None:
    inside = [sha256(str(i).encode()) for i in range(3000)]
    marks = Marks(len(inside))
    for digest in inside:
        marks.add(digest)
    assert all(digest in marks for digest in inside)
    assert not any(sha256(f"not {i}".encode()) in marks for i in range(3000))


def test_nothing_that_a_ref_needs_goes(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    source = b"a source"
    with store.pending() as pending:
        for raw in (source, b"evidence", b"garbage"):
            pending.put(raw)
        gate = TestResult("PASSED", "test:unit", evidence=(Resource("log", sha256(b"evidence")),))
        made = a.deposit(store, key, gates=[gate])
    before = set(store.objects.all())
    assert set(closure(store, made.digest).objects()) | {
        digest for _, digest in store.trust_versions()
    } == before - {sha256(b"garbage")}
    assert removed(store, dry_run=True) == 1 and set(store.objects.all()) == before
    assert removed(store) == 1 and removed(store) == 0
    assert set(store.objects.all()) == before - {sha256(b"garbage")}
    assert whole(store, made)


def test_what_no_ref_names_goes_and_shared_pages_stay(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    one = a.deposit(store, key, ref="one", ids=range(20))
    two = a.deposit(store, key, ref="two", ids=range(27))
    store.set_ref("one", None)
    assert removed(store) > 0
    assert not store.objects.has(one.digest) and whole(store, two)
    assert [type(x) for x in check_store(store)] == [VerifySummary]
    again = a.deposit(store, key, ref="one", ids=range(20))
    assert again.digest == one.digest and whole(store, again)


def test_pins_preregistered_and_trust_files_stay(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    pinned = a.deposit(store, key, ref="x", ids=range(9))
    store.set_pin(pinned.digest, True)
    store.set_ref("x", None)
    with store.pending() as pending:
        expected = pending.put(b"expected").digest
        store.publish([PreregEntry(a.NOW, expected), PreregEntry(a.NOW, sha256(b"not here"))])
    assert removed(store) == 0
    assert whole(store, pinned) and store.objects.has(expected) and store.trust.version == 1
    store.set_pin(pinned.digest, False)
    assert removed(store) > 0 and not store.objects.has(pinned.digest)


def test_field_s09_what_a_writer_relies_on_stays(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    old = a.deposit(store, key, ref="old", ids=range(27))
    store.set_ref("old", None)
    with store.pending() as pending:
        new, manifest = a.put_all(pending, range(20))
        kept = [page.digest for page in manifest.pages if pending.keep(page.digest)]
        assert removed(store) > 0
        assert all(store.objects.has(digest) for digest in (new, *kept))
        assert not store.objects.has(old.digest)
    assert removed(store) > 0 and not store.objects.has(new)


def test_field_s09_what_is_named_while_gc_runs_stays(tmp_path: Path) -> None:
    """A ref is moved back to an old artifact between the mark and any step of the sweep."""
    counted = set()
    for at in range(40):
        folder = tmp_path / str(at)
        store, key = a.make_store(folder)
        old = a.deposit(store, key, ref="r", ids=range(27))
        store.set_ref("r", None)
        other = Store.open(folder, keyring=a.make_keyring(folder))
        seen = [0]

        def interfere(
            n: int,
            seen: list[int] = seen,
            at: int = at,
            other: Store = other,
            old: a.Made = old,
        ) -> None:
            seen[0] += 1
            if seen[0] == at + 1:
                try:
                    other.set_ref("r", old.digest)
                except Corrupt as error:
                    assert "missing" in error.message

        sweep(store, batch=1, advance=interfere)
        counted.add("r" in store.refs())
        if "r" in store.refs():
            assert whole(store, old)
        assert [type(x) for x in check_store(store)] == [VerifySummary]
        if seen[0] <= at:
            break
    assert counted == {False}


def test_a_ref_that_comes_before_its_manifest_went_keeps_all(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = [a.deposit(store, key, ref=f"r{i}", ids=range(i, i + 20)) for i in range(4)]
    for i in range(4):
        store.set_ref(f"r{i}", None)
    first = []

    def name_the_rest(n: int) -> None:
        if not first:
            first.append(n)
            left = [x for x in made if store.objects.has(x.digest)]
            assert len(left) == 3
            for x in left:
                store.set_ref(x.digest[7:17], x.digest)

    sweep(store, batch=1, advance=name_the_rest)
    kept = [x for x in made if store.objects.has(x.digest)]
    assert len(kept) == 3 and all(whole(store, x) for x in kept)


def test_field_s11_gc_asks_no_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    a.deposit(store, key, ref="demo", ids=range(9))
    for path in (store.root / "objects").rglob("*"):
        os.utime(path, (0, 2**33))
    monkeypatch.setattr(time, "time", lambda: -1.0)
    assert removed(store) > 0
    assert not store.objects.has(made.digest)


def test_field_s14_gc_works_on_a_full_disk(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    a.deposit(store, key, ids=range(20))
    kept = a.deposit(store, key, ids=range(100, 127))
    (store.staging / "partial.1.1.aaaa").write_bytes(b"left")

    def full(name: str, _path: str) -> None:
        if name in ("write", "create", "mkdir", "rename", "commit", "chmod"):
            raise OSError(28, "No space left on device")

    durable.set_hook(full)
    try:
        with pytest.raises(NoSpace):
            a.deposit(store, key, ids=range(9))
        found = sweep(store)
    finally:
        durable.set_hook(None)
    assert found.objects > 0 and found.bytes > 0 and found.temporaries == 1
    assert whole(store, kept)


def test_field_s31_a_killed_gc_is_finished_by_the_next(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    a.deposit(store, key, ids=range(20))
    kept = a.deposit(store, key, ids=range(100, 127))
    total = removed(store, dry_run=True)
    store.close()
    pid = os.fork()
    if pid == 0:
        left = [5]

        def kill(name: str, _path: str) -> None:
            left[0] -= 1
            if not left[0]:
                os._exit(77)

        durable.set_hook(kill)
        sweep(Store.open(tmp_path), batch=1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 77
    assert 0 < removed(store) < total
    assert removed(store) == 0 and whole(store, kept)


def test_field_s10_collectors_at_once_do_no_harm(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    for i in range(6):
        a.deposit(store, key, ids=range(i, i + 20))
    kept = a.deposit(store, key, ids=range(100, 127))
    found: list[Swept] = []
    threads = [
        threading.Thread(target=lambda: found.append(sweep(Store.open(tmp_path), batch=3)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3 and whole(store, kept) and removed(store) == 0


def test_temporaries_of_the_dead_go_and_those_of_the_living_stay(tmp_path: Path) -> None:
    store, _ = a.make_store(tmp_path)
    with store.pending() as pending:
        kept = pending.put(b"at work").digest
        fd, partial = durable.claim(store.staging, durable.PARTIAL)
        (store.staging / "partial.99.1.dead").write_bytes(b"12345")
        (store.staging / "pending" / "roots.99.1.dead").write_bytes(b"")
        (store.staging / "index.99.1.dead").mkdir()
        (store.staging / "index.99.1.dead" / "data.mdb").write_bytes(b"123")
        (store.staging / "quarantine").mkdir()
        found = sweep(store, dry_run=True)
        assert (found.temporaries, found.temporary_bytes) == (2, 8)
        found = sweep(store)
        assert (found.temporaries, found.temporary_bytes) == (3, 8)
        assert partial.exists() and store.objects.has(kept)
        os.close(fd)
    assert sweep(store).temporaries == 1
    assert sorted(os.listdir(store.staging)) == ["pending", "quarantine"]


def test_a_dry_run_waits_for_nobody_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    a.deposit(store, key)
    (store.staging / "partial.99.1.dead").write_bytes(b"12345")
    held = Lock(store.root / "lock", wait_s=0)
    impatient = Store.open(tmp_path, lock_wait=0)
    with held.exclusive():
        assert sweep(impatient, dry_run=True).temporaries == 1
        with pytest.raises(Conflict):
            sweep(impatient)


def test_gc_stops_where_it_cannot_tell_what_is_needed(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    os.unlink(store.objects.stored_path(made.digest))
    before = set(store.objects.all())
    with pytest.raises(Corrupt, match="cannot tell what it needs"):
        sweep(store)
    assert set(store.objects.all()) == before
    store.set_ref("demo", None)
    assert removed(store) > 0


def test_a_forgotten_artifact_gets_no_name_until_it_is_deposited_again(tmp_path: Path) -> None:
    from kvg.errors import NotFound

    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    store.publish([ForgetEntry(a.NOW, made.digest)])
    assert store.attestations(made.digest) == () and made.digest in store.forgotten()
    assert (
        store.find_tokens(a.MODEL.fingerprint, sha256(b"an engine"), 8, made.manifest.tokens.digest)
        == ()
    )
    for name in ("other",):
        with pytest.raises(NotFound, match="forget"):
            store.set_ref(name, made.digest)
    with pytest.raises(NotFound, match="forget"):
        store.set_pin(made.digest, True)
    again = a.deposit(store, key)
    assert again.digest == made.digest and store.forgotten() == frozenset()
    assert whole(store, again) and len(store.attestations(made.digest)) == 1
    store.reindex()
    assert len(store.attestations(made.digest)) == 1 and store.forgotten() == frozenset()


def test_garbage_of_many_batches(tmp_path: Path) -> None:
    store, _ = a.make_store(tmp_path)
    with store.pending() as pending:
        for i in range(150):
            pending.put(shake256(str(i).encode(), 50))
    assert removed(store, dry_run=True) == 150
    assert removed(store) == 150


def test_field_s09_what_lost_its_name_again_while_gc_ran_is_not_half_gone(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key, ref="r", ids=range(27))
    store.set_ref("r", None)
    other = Store.open(tmp_path, keyring=a.make_keyring(tmp_path))
    done: list[int] = []

    def deposit_again(n: int) -> None:
        if not done and not other.objects.has(made.digest):
            done.append(n)
            a.deposit(other, key, ref="r", ids=range(27))
            other.set_ref("r", None)

    sweep(store, batch=1, advance=deposit_again)
    assert done and store.is_complete(made.digest)
    store.set_ref("again", made.digest)
    assert whole(store, made)


def test_what_is_half_gone_gets_no_name(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key, ref="r", ids=range(27))
    store.set_ref("r", None)
    os.unlink(store.objects.stored_path(made.manifest.pages[0].digest))
    for name in (lambda: store.set_ref("r", made.digest), lambda: store.set_pin(made.digest, True)):
        with pytest.raises(Corrupt, match="missing"):
            name()
    tokens = made.manifest.tokens.digest
    engine, model = a.ENGINE.fingerprint, a.MODEL.fingerprint
    assert store.find_tokens(model, engine, a.PAGE_TOKENS, tokens) == ()
    again = a.deposit(store, key, ref="r", ids=range(27))
    assert store.find_tokens(model, engine, a.PAGE_TOKENS, tokens) == (again.digest,)
    assert whole(store, again)


def test_an_artifact_that_was_gone_when_it_was_looked_at_is_looked_at_again(
    tmp_path: Path,
) -> None:
    """Named and unnamed while a collector ran, removed by another, then deposited once more."""
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key, ref="demo")
    store.set_ref("demo", None)
    reach = Reach(store)
    reach.look()
    store.set_ref("demo", made.digest)
    store.set_ref("demo", None)
    store.objects.remove(made.digest)
    reach.look()
    a.deposit(store, key, ref="demo")
    reach.look()
    needed = closure(store, made.digest).objects()
    assert [digest for digest in needed if digest not in reach] == []


def test_what_a_later_attestation_names_is_kept_too(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key, ref="demo")
    reach = Reach(store)
    reach.look()
    evidence = sha256(b"evidence that came later")
    gate = TestResult("PASSED", "test:unit", evidence=(Resource("log", evidence),))
    with store.pending() as pending:
        pending.put(b"evidence that came later")
        a.attest(store, key, made.digest, encode_test_result(made.digest, gate))
    reach.look()
    assert evidence in reach


def lie(store: Store, table: str, key: bytes) -> None:
    """Take a row out of the index, which says all the same that it is up to date."""
    with open_file(store.root / "index.lmdb").writing() as tables:
        assert tables.get(table, key) is not None
        tables.delete(table, key)


@pytest.mark.parametrize("table", [t.REFS, t.PINS, t.ATTESTATIONS, t.TRUST, t.FAMILIES])
def test_a_lying_index_makes_gc_remove_nothing(tmp_path: Path, table: str) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key, ref="demo")
    pinned = a.deposit(store, key, ref="x", ids=range(9))
    family = sha256(b"a family")
    a.attest(store, key, made.digest, encode_provenance(made.digest, of_family(family)))
    store.set_pin(pinned.digest, True)
    store.set_ref("x", None)
    before = set(store.objects.all())
    keys = {t.REFS: b"demo", t.PINS: raw_of(pinned.digest), t.FAMILIES: raw_of(family)}
    keys[t.TRUST] = encode_number(store.trust_versions()[0][0])
    keys[t.ATTESTATIONS] = raw_of(made.digest) + encode_number(
        store.attestations(made.digest)[0].index
    )
    lie(store, table, keys[table])
    sweep(store)
    assert set(store.objects.all()) == before


def of_family(family: Digest) -> Provenance:
    return replace(a.provenance(), family=family)


def test_an_index_that_calls_nothing_named_makes_gc_remove_nothing(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    a.deposit(store, key)
    before, older = set(store.objects.all()), store.index
    with open_file(older.folder).writing() as tables:
        for table in t.EXACT:
            for row, _ in list(tables.scan(table)):
                tables.delete(table, row)
    assert not store.refs()
    sweep(store)
    assert set(store.objects.all()) == before


def test_flipped_bytes_of_the_index_make_gc_remove_nothing(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    for n in (10, 20, 27):
        a.deposit(store, key, ref=f"r{n}", ids=range(n))
    before, data = set(store.objects.all()), store.root / "index.lmdb" / "data.mdb"
    store.close()
    sound, rng = data.read_bytes(), random.Random(3)
    used = [at for at in range(len(sound)) if sound[at]]
    for _ in range(24):
        flipped = bytearray(sound)
        for at in rng.sample(used, 4):
            flipped[at] ^= 1 << rng.randrange(8)
        data.write_bytes(flipped)
        sweep(Store.open(store.root, keyring=store.keyring))
        assert set(store.objects.all()) == before
        store.close()


def test_a_long_log_is_folded_in_a_file_that_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, key = a.make_store(tmp_path)
    made = [a.deposit(store, key, ref=f"r{n}", ids=range(n)) for n in (10, 20)]
    monkeypatch.setattr("kvg.store.apart.BATCH_ENTRIES", 2)
    store.set_ref("r10", None)
    with store.by_log() as certain:
        assert certain.refs() == store.refs() and certain.artifacts() == store.artifacts()
        assert any(path.name.startswith("index.") for path in store.staging.iterdir())
        store.set_ref("r20", None)
        assert certain.refs() == {}
    store.set_ref("r20", made[1].digest)
    assert removed(store) > 0 and whole(store, made[1])
    assert [path.name for path in store.staging.iterdir()] == ["pending"]


@pytest.mark.parametrize("line", [b"no digest\n", b"x" * 1000])
def test_a_note_of_what_is_at_work_that_is_none_is_named(tmp_path: Path, line: bytes) -> None:
    """Nothing is removed on it, and a line without an end is not read to it."""
    store, _ = a.make_store(tmp_path)
    with store.pending() as pending:
        kept = pending.put(b"at work").digest
        (path,) = (store.staging / "pending").iterdir()
        with open(path, "ab") as file:
            file.write(line)
        with pytest.raises(Corrupt, match="not a list of digests"):
            sweep(store)
    assert store.objects.has(kept)
