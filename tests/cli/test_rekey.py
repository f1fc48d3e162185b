"""``kvg key rekey``: a new key for the log, whole or not at all, and followed from the old one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kvg import durable
from kvg.errors import Untrusted
from kvg.log.log import Log
from kvg.log.tiles import FolderSource
from kvg.signing.note import encode_verifier, parse_verifier
from kvg.store import Store
from kvg.store.rekey import rekey
from tests.artifacts import key_of
from tests.cli.conftest import Run, Stored


def opened(root: Path, line: str) -> Log:
    """The log as somebody sees it who knows the verifier ``line``."""
    return Log.open(root / "log", verifier=parse_verifier(line, what="it")[1], staging=root / "tmp")


def fresh(stored: Stored) -> Store:
    return Store.open(stored.store.root, keyring=stored.store.keyring)


def test_the_log_goes_on_under_its_new_key(stored: Stored, kvg: Run, home: Path) -> None:
    root = stored.store.root
    first = kvg("log", "--checkpoint", "--json").record["verifier"]
    done = kvg("key", "rekey", "--json").record
    assert done["previous"] == first != done["verifier"]
    assert kvg("verify").code == 0 and kvg("fsck").code == 0
    assert kvg("tag", "v1", "demo").code == 0
    newest = kvg("log", "--json").records
    assert [item["entry"] for item in newest[:2]] == ["ref", "rekey"]
    assert kvg("key", "rekey", "-q").code == 0
    assert kvg("tag", "v2", "demo").code == 0
    assert kvg("verify").code == 0
    third = kvg("log", "--checkpoint", "--json").record["verifier"]
    for line in (first, done["verifier"], third):  # each pin leads to the present key
        assert opened(root, line).size == fresh(stored).log.size
    names = sorted(path.name for path in (home / ".local/share/kvg/keys/logs").iterdir())
    assert len(names) == 3  # the key, its public half, what was seen


def test_nobody_else_gives_the_log_a_key(stored: Stored, kvg: Run) -> None:
    root = stored.store.root
    first = kvg("log", "--checkpoint", "--json").record["verifier"]
    kvg("key", "rekey")
    second = kvg("log", "--checkpoint", "--json").record["verifier"]
    (kept,) = (path for path in (root / "log/rekey").iterdir() if path.name != "first")
    good = kept.read_bytes()
    lines = good.splitlines(keepends=True)
    for bad in (b"".join(lines[:-2] + lines[-1:]), b"".join(lines[:-1])):  # one of the two signed
        kept.write_bytes(bad)
        with pytest.raises(Untrusted, match="expected"):
            opened(root, first)
    kept.unlink()
    with pytest.raises(Untrusted, match="expected"):
        opened(root, first)
    opened(root, second)
    with pytest.raises(Untrusted):
        Log.open(root / "log", verifier=key_of("mallory").public, staging=root / "tmp")


def test_a_swapped_verifier_line_is_no_rekey(stored: Stored, kvg: Run) -> None:
    other = Path("other")
    kvg("init", str(other))
    shutil.copytree(other / ".kvg/log", "swapped")
    shutil.rmtree(".kvg/log")
    shutil.move("swapped", ".kvg/log")
    assert kvg("ls").code == 6


def test_cut_short_at_every_point(
    stored: Stored, kvg: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each: the store verifies, takes another entry, and is rekeyed by the next try."""
    keys = home / ".local/share/kvg/keys"
    shutil.copytree(".kvg", tmp_path / "store")
    shutil.copytree(keys, tmp_path / "keys")
    monkeypatch.setattr("os.fsync", lambda fd: None)
    n_points, done = 0, False
    while not done:
        for source, target in ((tmp_path / "store", Path(".kvg")), (tmp_path / "keys", keys)):
            shutil.rmtree(target)
            shutil.copytree(source, target)
        left = n_points

        def stop(name: str, path: object) -> int | None:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
            return None

        durable.set_hook(stop)
        try:
            done = kvg("key", "rekey").code == 0
        finally:
            durable.set_hook(None)
        assert kvg("verify").code == 0, n_points
        assert kvg("tag", "v1", "demo").code == 0, n_points
        assert kvg("key", "rekey").code == 0, n_points
        assert kvg("fsck").code == 0, n_points
        n_points += 1
    assert n_points > 20


def test_a_store_that_is_open_meanwhile_goes_on(stored: Stored, kvg: Run) -> None:
    open_long, reader = stored.store, Store.open(stored.store.root, keyring=stored.store.keyring)
    assert open_long.refs() and reader.refs()
    for name in ("v1", "v2"):
        assert kvg("key", "rekey", "-q").code == 0
        assert open_long.refs() and reader.refs()
        open_long.set_ref(name, stored.digest)
    assert reader.refs()["v2"] == stored.digest
    assert kvg("verify").code == 0 and kvg("fsck").code == 0


def test_a_key_swapped_in_the_configuration_is_seen_all_the_same(stored: Stored) -> None:
    other = encode_verifier(stored.store.log.origin, key_of("mallory").public)
    fresh(stored).config.set("store.log", other)
    for store in (stored.store, fresh(stored)):
        store._log = None
        store.config.reread()
        with pytest.raises(Untrusted, match="not the key"):
            store.refs()


def test_a_log_is_opened_while_its_key_changes(
    stored: Stored, kvg: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two files that are read of it."""
    from kvg.log import log as module

    read, names = module._read, list[str]()

    def meanwhile(source: FolderSource, name: str, limit: int) -> bytes:
        names.append(name)
        if names == [module.VERIFIER, module.CHECKPOINT]:
            monkeypatch.undo()
            other = fresh(stored)
            rekey(other, now=1)
            other.set_ref("v1", stored.digest)
        return read(source, name, limit)

    line = parse_verifier(stored.store.config.text("store.log") or "", what="it")[1]
    monkeypatch.setattr(module, "_read", meanwhile)
    root = stored.store.root
    assert (
        Log.open(root / "log", verifier=line, staging=root / "tmp").size == fresh(stored).log.size
    )


def test_a_dry_run(stored: Stored, kvg: Run) -> None:
    size = stored.store.log.size
    shown = kvg("key", "rekey", "--dry-run")
    assert shown.code == 0 and "would be replaced" in shown.out
    assert fresh(stored).log.size == size


def test_receipts_from_before_it_count_in_their_own_store(
    stored: Stored, kvg: Run, tmp_path: Path
) -> None:
    first = kvg("log", "--checkpoint", "--json").record["verifier"]
    papers = [tmp_path / f"receipt.{number}" for number in range(3)]
    for paper in papers:
        paper.write_text(kvg("log", "demo", "--receipt").out)
        assert kvg("key", "rekey", "-q").code == 0
    assert kvg("tag", "v1", "demo").code == 0
    for paper in papers:
        assert kvg("log", "--check", paper).code == 0
    assert kvg("log", "--check", papers[0], "--verifier", first).code == 0
    assert kvg("log", "--check", papers[2], "--verifier", first).code == 6


def test_an_old_key_signs_nothing_after_it(stored: Stored, kvg: Run, tmp_path: Path) -> None:
    """Who has the key that was replaced may not vouch for what came later."""
    from dataclasses import replace

    from kvg.log.checkpoint import sign_checkpoint
    from kvg.log.receipts import encode_receipt, parse_receipt

    store = stored.store
    old = store.log_key()
    assert kvg("key", "rekey", "-q").code == 0 and kvg("tag", "v1", "demo").code == 0
    good = kvg("log", "v1", "--receipt", "--json").records[0]["receipt"]
    receipt = parse_receipt(good.encode(), what="it")
    forged = replace(receipt, note=sign_checkpoint(receipt.checkpoint, old))
    (tmp_path / "forged").write_bytes(encode_receipt(forged))
    assert kvg("log", "--check", tmp_path / "forged").code == 6


@pytest.mark.parametrize("what", ["first", "note", "gone"])
def test_fsck_looks_at_the_record_of_it(stored: Stored, kvg: Run, what: str) -> None:
    assert kvg("key", "rekey", "-q").code == 0 and kvg("key", "rekey", "-q").code == 0
    folder = stored.store.root / "log/rekey"
    sizes = sorted(int(path.name) for path in folder.iterdir() if path.name != "first")
    path = folder / ("first" if what == "first" else str(sizes[0]))
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.unlink()
    if what != "gone":
        path.write_bytes(data)
    found = kvg("fsck")
    assert found.code in (5, 6) and path.name in found.out
