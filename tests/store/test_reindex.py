"""The index is a cache: whatever becomes of it, the files bring all of it back."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kvg.digest import raw_of, sha256
from kvg.log.entry import ForgetEntry, PreregEntry, RevokeEntry
from kvg.objects.statement import encode_provenance
from kvg.store import Store
from kvg.store import tables as t
from kvg.store.sweep import sweep
from kvg.trust import sign_trust
from tests import artifacts as a

FAMILY = sha256(b"a family")


def full(folder: Path) -> Store:
    """A store with something of every kind that the index knows."""
    store, key = a.make_store(folder)
    made = [a.deposit(store, key, ref=f"r{n}", ids=range(n), cuts=(8,)) for n in (12, 20, 27)]
    store.set_ref("r12", made[1].digest)
    store.set_ref("gone", made[0].digest)
    store.set_ref("gone", None)
    store.set_pin(made[0].digest, True)
    store.set_pin(made[2].digest, True)
    store.set_pin(made[2].digest, False)
    payload = encode_provenance(made[1].digest, replace(a.provenance(), family=FAMILY))
    a.attest(store, key, made[1].digest, payload)
    store.publish(
        [
            PreregEntry(a.NOW, sha256(b"expected")),
            ForgetEntry(a.NOW, sha256(b"forgotten")),
            RevokeEntry(a.NOW, "0" * 64, "elsewhere", 3),
        ]
    )
    store.set_trust(sign_trust(store.trust.with_key(a.key_of("bob").public, ["verifier"]), [key]))
    store.config.set_table("model", "tiny", {"path": "/models/tiny", "fingerprint": "sha256:00"})
    store.config.set_table("remote", "origin", {"url": "/mnt/share"})
    store.config.set("default.model", "tiny")
    (store.root / "peers" / "elsewhere").mkdir(parents=True)
    (store.root / "peers" / "elsewhere" / "checkpoint").write_bytes(b"kept")
    store.remember(["weights"], b"fingerprint")
    return store


def answers(store: Store) -> object:
    """Everything a store answers that the index has a part in, and what only files hold."""
    ids = range(20)
    return (
        store.refs(),
        {name: store.history(name) for name in ("r12", "r20", "r27", "gone")},
        store.artifacts(),
        [store.attestations(digest) for digest in store.artifacts()],
        store.pins(),
        store.preregistered(),
        store.forgotten(),
        store.trust_versions(),
        store.trust,
        store.find_prefix(a.MODEL.fingerprint, a.ENGINE.fingerprint, a.PAGE_TOKENS, tuple(ids)),
        store.index.query(lambda tables: list(tables.scan(t.FAMILIES))),
        store.config.table("model", "tiny"),
        store.config.table("remote", "origin"),
        store.config.text("default.model"),
        (store.root / "peers" / "elsewhere" / "checkpoint").read_bytes(),
    )


def lost(index: Path) -> None:
    shutil.rmtree(index)


def data_lost(index: Path) -> None:
    os.unlink(index / "data.mdb")


def truncated(index: Path) -> None:
    os.truncate(index / "data.mdb", 3 * 4096)


def emptied(index: Path) -> None:
    os.truncate(index / "data.mdb", 0)


def zeroed(index: Path) -> None:
    path = index / "data.mdb"
    path.write_bytes(bytes(path.stat().st_size))


def other_version(index: Path) -> None:
    """As LMDB 1.0 writes it."""
    _made_by(index, 1)


def _made_by(index: Path, version: int) -> None:
    import lmdb

    shutil.rmtree(index)
    index.mkdir()
    with (
        lmdb.open(os.fspath(index), max_dbs=20, map_size=1 << 24, lib_version=version) as made,
        made.begin(write=True) as transaction,
    ):
        refs = made.open_db(b"refs", transaction)
        transaction.put(b"r12", b"nonsense", db=refs)


def of_another_program(index: Path) -> None:
    """A sound LMDB file of the right version that kvg did not write."""
    _made_by(index, 0)


def other_schema(index: Path) -> None:
    path = index / "data.mdb"
    path.write_bytes(path.read_bytes().replace(b"kvg.index/", b"kvg.indey/"))


DAMAGES: tuple[Callable[[Path], None], ...] = (
    lost,
    data_lost,
    truncated,
    emptied,
    zeroed,
    other_version,
    of_another_program,
    other_schema,
)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("asked", [False, True], ids=["by itself", "reindex"])
def test_field_k14_nothing_is_lost_with_the_index(
    tmp_path: Path, damage: Callable[[Path], None], asked: bool
) -> None:
    store = full(tmp_path)
    before = answers(store)
    store.close()
    damage(store.root / "index.lmdb")
    store = Store.open(tmp_path, keyring=a.make_keyring(tmp_path))
    if asked:
        assert store.reindex() == store.log.size
    assert answers(store) == before
    assert store.index.differences() == () and store.index.structure_faults() == ()
    a.deposit(store, a.key_of("alice"), ref="after")
    assert "after" in store.refs()


def test_a_stale_index_catches_up_in_every_table(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    a.deposit(store, key)
    store.close()
    shutil.copytree(store.root / "index.lmdb", tmp_path / "stale")
    shutil.rmtree(store.root)
    (tmp_path / "keys").rename(tmp_path / "old-keys")
    store = full(tmp_path)
    before = answers(store)
    store.close()
    shutil.rmtree(store.root / "index.lmdb")
    shutil.copytree(tmp_path / "stale", store.root / "index.lmdb")
    assert answers(store) == before


def test_losing_the_fingerprint_cache_costs_only_time(tmp_path: Path) -> None:
    store = full(tmp_path)
    assert store.recall(["weights"]) == b"fingerprint"
    store.reindex()
    assert store.recall(["weights"]) == b"fingerprint"  # what reindex need not drop, it keeps
    store.close()
    lost(store.root / "index.lmdb")
    assert store.recall(["weights"]) is None
    assert store.config.table("model", "tiny")["fingerprint"] == "sha256:00"


def test_nothing_lives_only_in_the_index(tmp_path: Path) -> None:
    """A copy of the store without its index is the store."""
    store = full(tmp_path / "one")
    before = answers(store)
    store.close()
    shutil.copytree(
        store.root, tmp_path / "two" / ".kvg", ignore=shutil.ignore_patterns("index.lmdb", "tmp")
    )
    assert answers(Store.open(tmp_path / "two")) == before


def computed(store: Store, made: a.Made) -> object:
    """What is found of ``made`` by its token ids and its family, and what a list shows of it."""
    model, engine = a.MODEL.fingerprint, a.ENGINE.fingerprint
    tokens = made.manifest.tokens.digest
    key = raw_of(made.digest)
    return (
        store.find_tokens(model, engine, a.PAGE_TOKENS, tokens),
        store.find_prefix(model, engine, a.PAGE_TOKENS, made.ids),
        [member.digest for member in store.family_members(FAMILY)],
        store.index.query(lambda tables: tables.get(t.OUTLINES, key)) is not None,
    )


def taken_by_gc(folder: Path) -> tuple[Store, a.Made, object, Path]:
    """A store whose artifact went after ``rm`` and ``gc``, and was missed by ``reindex``; what was
    found of it before, and a copy of its objects."""
    store, key = a.make_store(folder)
    made = a.deposit(store, key)
    for label in ("one", "two"):
        payload = encode_provenance(made.digest, replace(a.provenance(label), family=FAMILY))
        a.attest(store, key, made.digest, payload)
    before = computed(store, made)
    shutil.copytree(store.root / "objects", folder / "copy")
    store.set_ref("demo", None)
    sweep(store)
    assert not store.objects.has(made.digest)
    store.reindex()
    assert store.index.differences() == ()
    return store, made, before, folder / "copy"


@pytest.mark.parametrize("uri", [None, "kvg:again"], ids=["attested before", "attested anew"])
@pytest.mark.parametrize("ref", [None, "demo"])
@pytest.mark.parametrize("cut", [False, True], ids=["whole", "cut short"])
def test_what_is_deposited_again_is_listed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str | None, ref: str | None, cut: bool
) -> None:
    """Its attestations of before are in the log, and a reindex has passed it over meanwhile; a
    deposit may end when its entries are in the log."""
    store, made, before, _ = taken_by_gc(tmp_path)
    with monkeypatch.context() as patch:
        if cut and (uri or ref):
            patch.setattr(store.index, "update", lambda: False)
        a.deposit(store, a.key_of("alice"), ref=ref, uri=uri)
    assert store.index.differences() == ()
    assert computed(store, made)[:2] == before[:2]


def test_what_came_back_is_listed_again(tmp_path: Path) -> None:
    """No entry of the log says that its objects are there again."""
    store, made, before, copy = taken_by_gc(tmp_path)
    shutil.copytree(copy, store.root / "objects", dirs_exist_ok=True)
    assert store.index.differences() != ()
    for _ in range(2):
        store.index.list_again([made.digest, sha256(b"no artifact")])
        assert store.index.differences() == ()
        assert computed(store, made) == before


def test_members_of_a_family_stay_in_the_order_of_the_log(tmp_path: Path) -> None:
    store, made, _, copy = taken_by_gc(tmp_path)
    key = a.key_of("alice")
    other = a.deposit(store, key, ref="other", ids=range(9))
    payload = encode_provenance(other.digest, replace(a.provenance(), family=FAMILY))
    a.attest(store, key, other.digest, payload)
    shutil.copytree(copy, store.root / "objects", dirs_exist_ok=True)
    store.index.list_again([made.digest])
    again = store.family_members(FAMILY)
    store.reindex()
    assert again == store.family_members(FAMILY)
    assert [member.digest for member in again] == [made.digest, made.digest, other.digest]
