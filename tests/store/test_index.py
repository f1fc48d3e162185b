from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kvg.errors import Corrupt, Untrusted
from kvg.log.log import Log
from kvg.store import Store
from kvg.store import tables as t
from kvg.store.forget import plan_forget, remove_for_good
from kvg.store.index import BATCH_ENTRIES
from kvg.store.lmdb_file import BrokenIndex, LmdbFile, check_file, verify_file
from kvg.store.refs import all_refs
from tests import artifacts as a


def answers(store: Store) -> object:
    return (
        store.refs(),
        store.artifacts(),
        store.history("demo"),
        store.attestations(store.refs()["demo"]),
        store.trust_versions(),
    )


def made(tmp_path: Path) -> tuple[Store, object]:
    store, key = a.make_store(tmp_path)
    for n in (10, 20, 27):
        a.deposit(store, key, ids=range(n))
    found = answers(store)
    store.close()
    return store, found


def data_file(store: Store) -> Path:
    return store.root / "index.lmdb" / "data.mdb"


def test_field_k14_a_missing_index_is_rebuilt(tmp_path: Path) -> None:
    store, found = made(tmp_path)
    shutil.rmtree(store.root / "index.lmdb")
    assert answers(store) == found
    assert data_file(store).exists()


@pytest.mark.parametrize("size", [0, 1, 100, 4096, 4097, 8191, 8192, 12288, 20480])
def test_a_truncated_index_is_rebuilt(tmp_path: Path, size: int) -> None:
    store, found = made(tmp_path)
    assert size < data_file(store).stat().st_size
    os.truncate(data_file(store), size)
    assert answers(store) == found
    assert verify_file(data_file(store)) == ()


def test_an_index_truncated_while_it_is_open_is_not_mapped_by_others(tmp_path: Path) -> None:
    store, _ = made(tmp_path)
    os.truncate(data_file(store), 8192)
    with pytest.raises(BrokenIndex, match="cut short"):
        check_file(data_file(store))


@pytest.mark.parametrize("junk", [b"x" * 8192, bytes(65536), b"SQLite format 3\0" * 1000])
def test_a_file_that_is_no_index_is_replaced(tmp_path: Path, junk: bytes) -> None:
    store, found = made(tmp_path)
    data_file(store).write_bytes(junk)
    assert answers(store) == found


def test_a_plain_file_in_the_place_of_the_folder_is_replaced(tmp_path: Path) -> None:
    store, found = made(tmp_path)
    shutil.rmtree(store.root / "index.lmdb")
    (store.root / "index.lmdb").write_bytes(b"not a folder")
    assert answers(store) == found


def test_a_glimpse_is_of_the_file_as_it_lies(tmp_path: Path) -> None:
    store, _ = made(tmp_path)

    def names(tables: t.Tables) -> list[str]:
        return [value.name for value in all_refs(tables)]

    assert store.index.glimpse(names) == ["demo"]
    (store.root / "log" / "checkpoint").write_bytes(b"")  # which nobody has looked at
    store.close()
    assert store.index.glimpse(names) == ["demo"]
    store.close()
    os.truncate(data_file(store), 8192)
    assert store.index.glimpse(names) is None
    shutil.rmtree(store.root / "index.lmdb")
    assert store.index.glimpse(names) is None
    assert not (store.root / "index.lmdb").exists()


def test_the_index_of_another_store_is_not_believed(tmp_path: Path) -> None:
    store, found = made(tmp_path)
    other, key = a.make_store(tmp_path / "other", label="bob")
    for n in (5, 6, 7, 8):
        a.deposit(other, key, ids=range(n), ref=f"x{n}")
    other.close()
    shutil.rmtree(store.root / "index.lmdb")
    shutil.copytree(other.root / "index.lmdb", store.root / "index.lmdb")
    assert answers(store) == found


def test_field_s16_an_older_index_catches_up(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    a.deposit(store, key, ids=range(10))
    store.close()
    shutil.copytree(store.root / "index.lmdb", tmp_path / "old")
    a.deposit(store, key, ids=range(20))
    found = answers(store)
    store.close()
    shutil.rmtree(store.root / "index.lmdb")
    shutil.copytree(tmp_path / "old", store.root / "index.lmdb")
    assert answers(store) == found


def test_an_index_ahead_of_its_log_is_rebuilt_when_that_is_asked_for(tmp_path: Path) -> None:
    """It is what remembers that the log went back."""
    store, key = a.make_store(tmp_path)
    a.deposit(store, key, ids=range(10))
    found = answers(store)
    checkpoint = (store.root / "log" / "checkpoint").read_bytes()
    a.deposit(store, key, ids=range(20))
    store.close()
    (store.root / "log" / "checkpoint").write_bytes(checkpoint)
    for _ in range(2):
        with pytest.raises(Untrusted, match="rolled back"):
            answers(Store.open(tmp_path))
    Store.open(tmp_path).reindex()
    assert answers(Store.open(tmp_path)) == found


FLIP = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from kvg.store import Store
from kvg.errors import KvgError
from tests.store.test_index import answers
print(answers(Store.open(Path(sys.argv[1]))))
"""


def ask_elsewhere(tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """In a process of its own, because what LMDB does with a broken page is LMDB's affair."""
    root = Path(__file__).resolve().parents[2]
    return subprocess.run(
        [sys.executable, "-c", FLIP, os.fspath(tmp_path), os.fspath(root)],
        capture_output=True,
        text=True,
        cwd=root,
        check=False,
    )


def test_a_flipped_bit_in_a_value_changes_no_answer(tmp_path: Path) -> None:
    store, found = made(tmp_path)
    whole = data_file(store).read_bytes()
    for place in [i + 14 for i in range(len(whole)) if whole[i : i + 4] == b"demo"][:3]:
        spoilt = bytearray(whole)
        spoilt[place] ^= 0x10
        data_file(store).write_bytes(spoilt)
        assert ask_elsewhere(tmp_path).stdout.strip() == str(found), place


def test_a_flipped_bit_anywhere_kills_no_process(tmp_path: Path) -> None:
    store, _ = made(tmp_path)
    whole = data_file(store).read_bytes()
    choice = random.Random(1)
    for place in (choice.randrange(len(whole)) for _ in range(6)):
        spoilt = bytearray(whole)
        spoilt[place] ^= 1 << choice.randrange(8)
        data_file(store).write_bytes(spoilt)
        assert ask_elsewhere(tmp_path).returncode == 0, place


def test_a_value_that_fails_its_check_is_a_broken_index(tmp_path: Path) -> None:
    import lmdb

    store, found = made(tmp_path)
    environment = lmdb.open(
        os.fspath(store.root / "index.lmdb"), max_dbs=20, map_size=1 << 30, lib_version=0
    )
    with environment.begin(write=True) as transaction:
        refs = environment.open_db(t.REFS.encode(), transaction)
        stored = bytearray(transaction.get(b"demo", db=refs))
        stored[-5] ^= 1
        transaction.put(b"demo", bytes(stored), db=refs)
    environment.close()
    assert answers(store) == found


def test_reindex_gives_the_same_tables(tmp_path: Path) -> None:
    store, found = made(tmp_path)

    def dump(tables: t.Tables) -> object:
        return {name: list(tables.scan(name)) for name in t.FOLDED}

    before = store.index.query(dump)
    assert store.reindex() == store.log.size
    assert store.index.query(dump) == before
    assert answers(store) == found


def test_memory_and_file_give_the_same_answers(tmp_path: Path) -> None:
    store, _ = made(tmp_path)

    def dump(tables: t.Tables) -> object:
        return {name: list(tables.scan(name)) for name in t.FOLDED if name != t.META}

    assert store.index.query(dump) == dump(store.index._in_memory())


def test_memory_follows_the_log(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    a.deposit(store, key, ids=range(10))
    store.index._in_memory()
    a.deposit(store, key, ids=range(20), ref="later")
    tables = store.index._in_memory()
    assert [name for name, _ in tables.scan(t.REFS)] == [b"demo", b"later"]


def test_more_entries_than_a_batch(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    digests = [a.deposit(store, key, ids=range(n), ref=None).digest for n in (5, 6)]
    from kvg.store import RefMove

    moves = [RefMove("demo", digests[i % 2]) for i in range(BATCH_ENTRIES + 10)]
    store.publish(moves)
    assert store.reindex() == store.log.size
    assert len(store.history("demo")) == len(moves)
    assert store.refs() == {"demo": digests[(len(moves) - 1) % 2]}


def test_a_child_after_fork_opens_its_own(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    a.deposit(store, key)
    store.refs()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            a.deposit(store, key, ids=range(9), ref="child")
            status = 0 if set(store.refs()) == {"demo", "child"} else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert set(store.refs()) == {"demo", "child"}


def test_offline_verification(tmp_path: Path) -> None:
    store, _ = made(tmp_path)
    assert verify_file(data_file(store)) == ()
    store.index.check()
    data_file(store).write_bytes(b"x" * 9000)
    with pytest.raises(Corrupt):
        verify_file(data_file(store))
    with pytest.raises(Corrupt):
        store.index.check()


def test_address_space_may_be_rationed(tmp_path: Path) -> None:
    _, found = made(tmp_path)
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))\n"
        "from kvg.store import Store\n"
        "from tests.store.test_index import answers\n"
        "print(answers(Store.open(Path(sys.argv[1]))))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, os.fspath(tmp_path)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).resolve().parents[2],
        check=False,
    )
    assert ran.stdout.strip() == str(found), ran.stderr


@pytest.mark.parametrize("is_long", [True, False])
def test_differences_of_a_long_log_are_found_beside_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_long: bool
) -> None:
    """The same is found either way: rows that are lost, changed and too many."""
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    for name in ("a", "b", "c"):
        store.set_ref(name, made.digest)
    if is_long:
        monkeypatch.setattr("kvg.store.index.BATCH_ENTRIES", 2)
    assert store.index.differences() == ()
    store.index.note(lambda tables: tables.delete(t.REFS, b"a"))
    store.index.note(lambda tables: tables.put(t.REFS, b"b", b"x"))
    store.index.note(lambda tables: tables.put(t.REFS, b"zz", b"x"))
    store.index.note(lambda tables: tables.put(t.PINS, bytes(32), bytes(8)))
    assert store.index.differences() == (
        "refs: 3 rows differ from the log",
        "pins: 1 rows differ from the log",
    )
    assert [name for name in os.listdir(store.staging) if name.startswith("index")] == []


@pytest.mark.parametrize("is_long", [True, False])
def test_what_others_write_meanwhile_is_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_long: bool
) -> None:
    """Whenever the check has looked at the log, somebody adds to it, and folds what they added."""
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    other = Store.open(store.root, keyring=store.keyring)
    n_written = 0

    def write() -> None:
        nonlocal n_written
        n_written += 1
        other.set_ref(f"late{n_written}", made.digest)
        other.set_ref("moving", made.digest if n_written % 2 else None)

    def log() -> Log:
        found = store.log
        write()
        return found

    write()
    if is_long:
        monkeypatch.setattr("kvg.store.index.BATCH_ENTRIES", 2)
    monkeypatch.setattr(store.index, "_log", log)
    assert store.index.differences() == ()
    assert n_written > 2
    store.index.note(lambda tables: tables.delete(t.REFS, b"late1"))
    assert store.index.differences() == ("refs: 1 rows differ from the log",)


def test_an_artifact_forgotten_meanwhile_is_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    other = Store.open(store.root, keyring=store.keyring)
    catch_up = store.index._catch_up

    def forgotten_meanwhile(file: LmdbFile) -> None:
        if made.digest not in other.forgotten():
            remove_for_good(other, plan_forget(other, made.digest), now=1)
        catch_up(file)

    monkeypatch.setattr(store.index, "_catch_up", forgotten_meanwhile)
    assert store.index.differences() == ()
    assert made.digest in store.forgotten()
