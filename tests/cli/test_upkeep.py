"""Upkeep from the command line: gc, fsck, du, stats, quota, forget."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kvg.digest import hex_of
from tests.artifacts import deposit, key_of
from tests.cli.conftest import Run, Stored


def test_gc(stored: Stored, kvg: Run) -> None:
    assert kvg("gc").out.startswith("removed 0 objects, 0 B; ")
    kvg("rm", "demo")
    planned = kvg("gc", "--dry-run", "--json").record
    assert planned["type"] == "collected" and planned["dry_run"] and planned["objects"] > 3
    assert "would remove" in kvg("gc", "--dry-run").out
    done = kvg("gc", "--json").record
    assert {**done, "dry_run": True} == {**planned}
    assert kvg("gc", "--json").record["objects"] == 0


def test_reindex_counts_what_fsck_does(stored: Stored, kvg: Run) -> None:
    deposit(stored.store, key_of("other"), ref="longer", ids=range(5, 40))
    assert kvg("reindex", "--json").record["artifacts"] == 2
    assert kvg("rm", "demo").code == 0 and kvg("gc").code == 0
    assert kvg("reindex", "--json").record["artifacts"] == 1
    assert kvg("fsck", "--json").record["artifacts"] == 1


def test_fsck(stored: Stored, kvg: Run) -> None:
    good = kvg("fsck")
    assert good.code == 0 and "no faults" in good.out
    path = stored.store.objects.stored_path(stored.digest)
    os.unlink(path)
    bad = kvg("fsck")
    assert bad.code == 5 and "missing" in bad.out and "1 fault" in bad.out
    deposit(stored.store, key_of("other"))
    page = stored.store.manifest(stored.digest).pages[0].digest
    path = stored.store.objects.stored_path(page)
    path.chmod(0o644)
    path.write_bytes(b"KVZ1")
    records = kvg("fsck", "--repair", "--json")
    assert records.code == 5
    assert [item["type"] for item in records.records] == ["finding", "repaired", "fsck-summary"]
    assert records.records[1]["moved_to"] == f"lost-found/{hex_of(page)}.0"
    assert "nothing needs" in kvg("fsck", "-v").out
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"KVZ1")
    again = kvg("fsck", "--repair")
    assert "was not looked at: kvg fsck" in again.err and "not looked at" not in kvg("fsck").err


def test_du_and_stats(stored: Stored, kvg: Run) -> None:
    kvg("tag", "same", "demo")
    one, two, total = kvg("du", "--json").records
    assert (one["ref"], two["ref"]) == ("demo", "same") and one["bytes"] == one["own_bytes"] > 0
    assert total["type"] == "usage-summary" and total["quota"] is None
    assert total["object_bytes"] > one["bytes"] and total["index_bytes"] > 0
    assert kvg("du", stored.digest[:15]).out.startswith("- ")
    assert kvg("du", "nothing").code == 3
    stats = kvg("stats", "--json").record
    assert stats["refs"] == 2 and stats["artifacts"] == 1 and stats["tokens"] == 27
    assert stats["pages"] == stats["distinct_pages"] == 6
    assert stats["models"] == {"TinyForCausalLM": 1}
    assert "artifacts" in kvg("stats").out


def test_quota(stored: Stored, kvg: Run) -> None:
    assert kvg("quota").out.endswith(" used, no quota\n")
    assert kvg("quota", "1GiB", "--dry-run", "--json").record["limit"] == 1 << 30
    assert kvg("quota", "--json").record["limit"] is None
    assert kvg("quota", "2.5kB", "--json").record["limit"] == 2500
    assert "kvg gc" in kvg("quota", "100").err
    kvg("key", "new", "more")
    refused = kvg("trust", "add", "more", "--json")
    assert refused.code == 10 and refused.error["kind"] == "no-space"
    assert "kvg quota" in refused.error["hint"]
    assert kvg("quota", "none", "--json").record["limit"] is None
    assert kvg("trust", "add", "more").code == 0
    assert kvg("config", "set", "store.quota", "10GB").code == 2
    assert kvg("config", "set", "store.quota", "100000000").code == 0
    assert kvg("quota", "--json").record["limit"] == 100_000_000
    for text in ("much", "-1", "1XB", ""):
        assert kvg("quota", text).code == 2


def test_forget(stored: Stored, kvg: Run) -> None:
    planned = kvg("forget", "demo", "--dry-run", "--json").record
    assert planned["dry_run"] and planned["objects"] > 8 and planned["faults"] is None
    assert stored.store.refs()
    done = kvg("forget", "demo", "--json")
    assert done.code == 0, done.err
    assert done.record["objects"] == planned["objects"] and done.record["refs"] == ["demo"]
    assert done.record["found"] == done.record["faults"] == 0 and done.record["traces"] > 0
    assert done.record["searched_bytes"] > 0 and done.record["log_index"] is not None
    assert kvg("ls").out == ""
    assert kvg("verify", stored.digest).code == 3
    again = kvg("forget", stored.digest[:20], "--json")
    assert again.code == 0 and again.record["objects"] == 0
    assert kvg("forget", "demo").code == 3
    assert kvg("tag", "back", stored.digest).code != 0
    assert "forget" in kvg("log").out


def test_a_forget_that_is_refused_leaves_nothing_to_look_for(
    stored: Stored, kvg: Run, home: Path
) -> None:
    (key,) = (home / ".local/share/kvg/keys/logs").glob("*.pem")
    key.rename(home / "away")
    refused = kvg("forget", "demo")
    assert refused.code == 3 and "no key for the log" in refused.err
    assert not list((stored.store.root / "forgotten").glob("*")) and kvg("verify").code == 0
    (home / "away").rename(key)
    assert kvg("forget", "demo").code == 0


def damage(stored: Stored, digest: str) -> None:
    path = stored.store.objects.stored_path(digest)
    data = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def test_forget_takes_damaged_copies_along(stored: Stored, kvg: Run) -> None:
    manifest = stored.store.manifest(stored.digest)
    damage(stored, manifest.pages[0].digest)
    damage(stored, manifest.tokens.digest)
    assert kvg("fsck", "--repair").code == 5
    assert len(list((stored.store.root / "lost-found").iterdir())) == 2
    done = kvg("forget", "demo", "--json")
    assert done.code == 0 and done.record["known"], done.out
    assert not list((stored.store.root / "lost-found").iterdir())


def test_forget_claims_nothing_without_the_manifest(stored: Stored, kvg: Run) -> None:
    manifest = stored.store.manifest(stored.digest)
    damage(stored, stored.digest)
    damage(stored, manifest.pages[0].digest)
    assert kvg("fsck", "--repair").code == 5
    done = kvg("forget", "demo", "--json")
    assert done.code == 5 and not done.records[-1]["known"] and done.records[-1]["refs"] == ["demo"]
    assert "not known what it held" in done.out and "kvg gc" in done.out
    assert kvg("ls").out == "" and "forget" in kvg("log").out
    text = kvg("forget", stored.digest)
    assert text.code == 5 and "nothing of it found" not in text.out
    assert kvg("gc").code == 0
    again = kvg("forget", stored.digest)
    assert again.code == 5 and "lost-found" in again.err and "kvg gc" not in again.err
    for path in (stored.store.root / "lost-found").iterdir():
        path.unlink()
    assert kvg("forget", stored.digest).code == 0


def test_forget_looks_again_for_what_it_found(stored: Stored, kvg: Run) -> None:
    """A copy in the store's folder, which it can't remove, whatever it is called later."""
    page = stored.store.manifest(stored.digest).pages[0].digest
    raw = bytes(stored.store.objects.read(page, what="page"))
    stray = stored.store.root / "notes.bin"
    stray.write_bytes(b"before" + raw)
    first = kvg("forget", "demo")
    assert first.code == 5 and "notes.bin: holds bytes" in first.out
    assert "notes.bin: not of a store" in first.out
    assert f"remove this file by hand, then kvg forget {stored.digest[:13]} again" in first.err
    held = [p.read_bytes() for p in stored.store.root.rglob("*") if p.is_file() and p != stray]
    pieces = {raw[i : i + 8] for i in range(len(raw) - 8)}
    telling = [piece for piece in pieces if len(set(piece)) > 5]
    assert telling and not any(piece in data for data in held for piece in telling)
    stray.rename(stored.store.root / "other.bin")
    again = kvg("forget", stored.digest[:13])
    assert again.code == 5 and "other.bin: holds bytes" in again.out and "notes" not in again.out
    (stored.store.root / "other.bin").unlink()
    last = kvg("forget", stored.digest)
    assert last.code == 0 and "nothing of it found" in last.out
    assert "nothing of it to look for" in kvg("forget", stored.digest).out


def test_forget_lists_what_stays(stored: Stored, kvg: Run) -> None:
    longer = deposit(stored.store, key_of("other"), ref="longer", ids=range(5, 40))
    planned = kvg("forget", "demo", "--dry-run", "--json").records[-1]
    done = kvg("forget", "demo", "--json")
    assert done.code == 0, done.out
    kinds = {item["kind"] for item in done.records[:-1]}
    assert kinds == {"object", "copy"}
    assert all(item["users"] == ["longer"] for item in done.records[:-1])
    said = done.records[-1]
    assert said["remaining"] + said["copies"] == len(done.records) - 1 and said["copies"]
    assert (planned["remaining"], planned["copies"]) == (said["remaining"], None)
    assert stored.store.objects.has(longer.digest)
    deposit(stored.store, key_of("other"), ref="third", ids=range(50, 60))
    text = kvg("forget", "third")
    assert "forgotten: " in text.out and "nothing of it found" in text.out


def test_init_shared(kvg: Run) -> None:
    made = kvg("init", "--shared", "group", "--json").record
    assert made["created"] and made["shared"]
    assert kvg("init", "--json").record["shared"]
    assert kvg("init", "elsewhere", "--shared", "world").code == 2


def test_what_is_no_artifact_gets_no_name_and_no_pin(stored: Stored, kvg: Run) -> None:
    page = stored.store.manifest(stored.digest).pages[0].digest
    for line in (("tag", "x", page), ("pin", page)):
        refused = kvg(*line, "--json")
        assert refused.code == 3 and "no artifact's manifest" in refused.error["message"]
        assert "kvg" in refused.error["hint"]
    damage(stored, page)
    assert kvg("tag", "x", page).code == kvg("pin", page).code == 5
    assert stored.store.pins() == frozenset() and kvg("pin", "demo").code == 0
    assert kvg("unpin", "demo").code == 0


def test_an_old_pin_of_a_page_blocks_nothing(stored: Stored, kvg: Run) -> None:
    page = stored.store.manifest(stored.digest).pages[0].digest
    stored.store.set_pin(page, True)
    found = kvg("fsck")
    assert found.code == 3 and "kvg unpin" in found.err + found.out
    done = kvg("forget", "demo")
    assert done.code == 0 and "kvg unpin" in done.err, done
    for verb in ("du", "gc", "ls", "audit"):
        assert kvg(verb).code == 0, verb
    assert kvg("unpin", page).code == 0 and kvg("fsck").code == 0


def test_a_configuration_that_is_no_toml(stored: Stored, kvg: Run) -> None:
    (stored.store.root / "config.toml").write_text("[store\nlog = = 3\n")
    done = kvg("fsck", "--json")
    assert done.code == 5 and done.records[-1]["type"] == "fsck-summary", done
    found = [item for item in done.records if "not TOML" in item.get("message", "")]
    assert len(found) == 1 and found[0]["object"] == "config.toml" and found[0]["hint"]
    assert done.records[-1]["faults"] == len(done.records) - 1


@pytest.mark.parametrize("verb", ["fsck", "verify", "ls"])
def test_a_setting_that_means_nothing_is_told_once(stored: Stored, kvg: Run, verb: str) -> None:
    path = stored.store.root / "config.toml"
    path.write_text(path.read_text().replace("[store]", "[store]\nqouta = 3"))
    done = kvg(verb)
    assert (done.out + done.err).count("store.qouta: no such setting") == 1, done


@pytest.mark.parametrize("verb", ["fsck", "verify", "ls", "gc"])
def test_so_is_one_of_the_user(stored: Stored, kvg: Run, home: Path, verb: str) -> None:
    from kvg.cli.layers import user_config_path

    path = user_config_path(os.environ)
    path.parent.mkdir(parents=True)
    path.write_text("[core]\njops = 3\n")
    done = kvg(verb)
    assert done.code == 0
    assert done.err.count("core.jops: no such setting; did you mean core.jobs?") == 1, done
    as_json = kvg(verb, "--json")
    assert (as_json.out + as_json.err).count("core.jops") <= 1


@pytest.mark.parametrize("verb", ["verify", "ls", "gc"])
def test_a_store_without_its_format_line_is_damaged(
    stored: Stored, kvg: Run, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when another store lies above it, which is not the one that was meant."""
    inner = stored.store.root.parent / "inner"
    assert kvg("init", str(inner)).code == 0
    monkeypatch.chdir(inner)
    assert kvg(verb).code == 0
    (inner / ".kvg" / "format").unlink()
    done = kvg(verb, "--json")
    assert done.code == 5 and "format: missing" in done.error["message"]
    assert "kvg-store 1" in done.error["hint"]
    assert kvg(verb, "--store", str(inner)).code == 5
    (inner / ".kvg" / "log" / "checkpoint").unlink()
    assert kvg(verb).code == 0  # what never was finished is no store


def test_du_shows_the_reserve(stored: Stored, kvg: Run) -> None:
    assert kvg("du", "--json").records[-1]["reserve_bytes"] == 8 * 65536
    assert "reserve 512.0 KiB" in kvg("du").out


@pytest.mark.parametrize("how", ["reindex", "lost"])
def test_what_was_forgotten_stays_so_without_the_index(stored: Stored, kvg: Run, how: str) -> None:
    """Though there is garbage, of which nobody could tell whose it was."""
    assert kvg("forget", "demo").code == 0
    with stored.store.pending() as pending:
        pending.put(b"of a deposit that was cut short, and of no artifact")
    assert kvg("forget", stored.digest).code == 0
    stored.store.close()
    if how == "lost":
        shutil.rmtree(stored.store.root / "index.lmdb")
    else:
        assert kvg("reindex").code == 0
    again = kvg("forget", stored.digest)
    assert again.code == 0, again.out
    deposit(stored.store, key_of("alice"))
    assert kvg("forget", "demo").code == kvg("forget", stored.digest).code == 0


def test_a_forget_that_was_cut_before_its_tombstone_is_told_and_ends_when_done_again(
    stored: Stored, kvg: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("kvg.flow.forget.remove_for_good", cut)
        assert kvg("forget", "demo").code == 130
    note = stored.store.root / "forgotten" / f"{hex_of(stored.digest)}.wanted"
    assert note.exists() and "demo" in kvg("ls").out
    told = kvg("fsck")
    assert told.code == 0 and f"kvg forget {stored.digest[:13]} again" in told.err
    assert kvg("fsck", "--json").record["to_forget"] == [stored.digest]
    assert kvg("forget", stored.digest[:13]).code == 0
    assert not note.exists() and kvg("fsck", "--json").record["to_forget"] == []
    removal = note.with_suffix("")
    removal.write_bytes(b"0")
    wrong = kvg("fsck")
    assert wrong.code == 5 and "names no entry of the log that forgets it" in wrong.out
    assert kvg("fsck", "--repair").code == 5 and kvg("fsck").code == 0
