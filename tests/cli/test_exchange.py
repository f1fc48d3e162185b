"""Exchange from the command line: what is said, where, and with which exit code."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run, Stored


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda fd: None)


def keyid(kvg: Run) -> str:
    return kvg("key", "show", "first", "--json").record["keyid"]


def test_push_clone_pull_as_people_see_it(kvg: Run, stored: Stored, tmp_path: Path) -> None:
    share = tmp_path / "share"
    assert kvg("remote", "add", "origin", str(share)).out == f"origin  {share}  (added)\n"
    assert kvg("status").out == "1 ref; origin never seen; model none; gates required: none\n"
    pushed = kvg("push")
    assert pushed.code == 0 and pushed.out == "origin: demo new, 10 objects\n"
    assert "can read the token ids" in pushed.err
    assert kvg("push").out == "origin: up to date\n"
    assert kvg("push", "--dry-run").out == "origin: up to date\n"
    assert kvg("push", "--verify").out == "origin: up to date, 10 objects read back\n"
    assert kvg("status").out == "1 ref; origin up to date; model none; gates required: none\n"
    refused = kvg("clone", str(share), "../peer")
    assert refused.code == 6 and "--trust" in refused.err and not Path("../peer").exists()
    short = keyid(kvg)[:6]
    cloned = kvg("clone", str(share), "../peer", "--trust", short)
    assert cloned.code == 0
    assert cloned.out == f"demo  {stored.digest[:13]}…  signed by {short}, trusted\n"
    assert kvg("-C", "../peer", "verify").out.startswith("1 artifact: bytes ok, signature ok")
    assert kvg("-C", "../peer", "pull").out == "origin: up to date\n"
    assert kvg("-C", "../peer", "rev-parse", "origin/demo").out.strip() == stored.digest
    assert kvg("-C", "../peer", "ls", "-0").raw == b"demo\0"
    assert kvg("-C", "../peer", "ls", "-0", "--all").raw == b"demo\0origin/demo\0"


def test_many_refs_are_counted_after_the_first(kvg: Run, stored: Stored, tmp_path: Path) -> None:
    kvg("remote", "add", "origin", str(tmp_path / "share"))
    for number in range(11):
        kvg("tag", f"many/{number:02}", "demo")
    out = kvg("push", "--dry-run").out
    first = ", ".join(f"many/{number:02} new" for number in range(7))
    assert out == f"origin: would: demo new, {first}, and 4 refs more, 10 objects\n"
    assert "many/10 new" in kvg("push", "-v").out


def test_started_in_a_folder_that_is_gone(kvg: Run, stored: Stored, tmp_path: Path) -> None:
    here = os.getcwd()
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    try:
        for words in (("status",), ("-C", here, "status")):
            told = kvg(*words)
            assert told.code == 3 and "was started in is gone" in told.err
    finally:
        os.chdir(here)


def test_clone_asks_on_a_terminal(kvg: Run, stored: Stored, tmp_path: Path) -> None:
    share = str(tmp_path / "share")
    kvg("remote", "add", "origin", share)
    kvg("push")
    no = kvg("clone", share, "../peer", tty=True, stdin=b"\n")
    assert no.code == 6 and keyid(kvg) in no.err
    assert kvg("clone", share, "../peer", tty=True, stdin=b"y\n").code == 0


def test_transfer_records(kvg: Run, stored: Stored, tmp_path: Path) -> None:
    share = str(tmp_path / "share")
    kvg("remote", "add", "origin", share)
    dry = kvg("push", "--dry-run", "--json").record
    assert dry["dry_run"] and dry["objects_sent"] == 10 and not Path(share).exists()
    record = kvg("push", "origin", "demo", "--json").record
    assert record["type"] == "transfer" and record["direction"] == "push"
    assert record["refs"] == [
        {"ref": "demo", "digest": stored.digest, "previous": None, "state": "new", "signers": []}
    ]
    assert record["objects_sent"] == 10 and record["objects_skipped"] == 0
    assert record["bytes"] > 0 and record["resumed"] == 0 and record["seconds"] >= 0
    status = kvg("status", "--json").record
    (state,) = status["remote_states"]
    assert state == {"name": "origin", "seen": True, "ahead": 0, "behind": 0, "refused": 0}


def test_conflict_has_code_4_and_a_hint(kvg: Run, stored: Stored, tmp_path: Path) -> None:
    from tests.artifacts import deposit

    share = str(tmp_path / "share")
    kvg("remote", "add", "origin", share)
    kvg("push")
    kvg("clone", share, "../peer", "--trust", keyid(kvg)[:6])
    key = stored.store.keyring.load("first")
    deposit(stored.store, key, ref="demo", ids=range(40))
    kvg("push")
    from kvg.store import Store

    peer = Store.open(Path("../peer").absolute(), keyring=stored.store.keyring)
    deposit(peer, key, ref="demo", ids=range(41))
    refused = kvg("-C", "../peer", "push", "--json")
    assert refused.code == 4
    finding, transfer = refused.records
    assert (finding["type"], finding["code"], finding["object"]) == ("finding", 4, "demo")
    assert "kvg pull" in finding["hint"] and transfer["refs"] == []


def test_remote_verbs(kvg: Run, stored: Stored, tmp_path: Path) -> None:
    share = str(tmp_path / "share")
    assert kvg("push").code == 3
    kvg("remote", "add", "origin", "../share")
    assert kvg("remote", "list").out == f"origin  {share}\n"
    assert kvg("remote", "add", "origin", share).code == 4
    assert kvg("remote", "add", "x", "ftp://h/x").code == 2
    assert kvg("remote", "set", "origin", "--codec", "0").code == 0
    assert kvg("remote", "set", "origin", "--codec", "7").code == 2
    assert kvg("remote", "list", "--json").record["codec"] == 0
    assert kvg("push").code == 0
    shown = kvg("remote", "show")
    assert "publisher " in shown.out and "same here" in shown.out
    assert kvg("remote", "remove", "origin").out.endswith("(removed)\n")
    assert kvg("remote", "list").out == ""
    assert kvg("pull", "origin").code == 3


def test_login_in_an_address_is_never_shown(kvg: Run, stored: Stored) -> None:
    url = "http://me:secret@127.0.0.1:9/x"
    for argv in (
        ("remote", "add", "origin", url),
        ("remote", "list", "--json"),
        ("remote", "show"),
        ("pull",),
        ("clone", url, "../peer", "--debug"),
    ):
        result = kvg(*argv)
        assert "secret" not in result.out + result.err, argv
    assert kvg("pull", "--json").code == 9
    assert json.loads(kvg("pull", "--json").err)["kind"] == "remote"


def test_login_in_an_address_stays_with_its_owner(
    kvg: Run, stored: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither shown by what reads the configuration nor readable there by others."""
    url = "https://bob:s3cret@127.0.0.1:9/x"
    config = stored.store.root / "config.toml"
    assert kvg("remote", "add", "web", url).code == 0
    assert url in config.read_text() and stat.S_IMODE(config.stat().st_mode) == 0o600
    for argv in (
        ("config", "list"),
        ("config", "list", "--json", "--show-origin"),
        ("config", "get", "remote.web.url"),
        ("config", "get", "remote.web.url", "--json"),
        ("config", "set", "remote.web.url", url),
        ("config", "set", "remote.web.url", url + "?y=1"),
        ("remote", "set", "web", url, "--json"),
        ("remote", "set", "web", "--codec", "0"),
        ("status",),
        ("pull", "web", "--debug"),
    ):
        result = kvg(*argv)
        assert "s3cret" not in result.out + result.err, argv
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    config.chmod(0o644)
    assert "chmod 600" in kvg("pull", "web").err
    assert kvg("remote", "set", "web", "https://127.0.0.1:9/x").code == 0
    assert stat.S_IMODE(config.stat().st_mode) == 0o644


def test_what_is_no_remote_is_refused_when_it_is_named(kvg: Run, stored: Stored) -> None:
    for argv in (
        ("remote", "add", "origin", "https:/host/x"),
        ("remote", "add", "origin", "git@host:/x"),
        ("remote", "add", "--", "-x", "../share"),
        ("config", "set", "remote.origin.url", "https:/host/x"),
        ("config", "set", "remote.-x.url", "../share"),
        ("clone", "https:host"),
        ("clone", "https://bob:s3c/ret@h/x"),
        ("remote", "add", "origin", "."),
        ("remote", "add", "origin", ".kvg"),
        ("remote", "add", "origin", ".kvg/share"),
        ("config", "set", "remote.origin.url", "https://h/?token=ret"),
    ):
        refused = kvg(*argv)
        assert refused.code == 2, argv
        assert "hint:" in refused.err and "ret" not in refused.err, argv
    assert kvg("remote", "list").out == ""
    assert kvg("config", "set", "remote.origin.url", "../share").code == 0
    assert kvg("remote", "list").out == f"origin  {Path('../share').resolve()}\n"


def test_a_store_is_no_remote_of_its_own(kvg: Run, stored: Stored) -> None:
    """Also where its address says so in another way, or was written by hand."""
    Path("other").symlink_to(".kvg")
    for url in ("other", f"file://{Path.cwd()}"):
        assert kvg("remote", "add", "origin", url).code == 2
    before = sorted(stored.store.root.rglob("*"))
    config = stored.store.root / "config.toml"
    with open(config, "a") as file:
        file.write(f'[remote.origin]\nurl = "{Path.cwd()}"\n')
    for verb in ("push", "pull", "fetch"):
        refused = kvg(verb)
        assert refused.code == 2 and "this very store" in refused.err
    assert sorted(stored.store.root.rglob("*")) == before


def test_a_store_reached_in_another_way_is_no_remote_of_its_own(
    kvg: Run, stored: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through a far side, as over ssh, where no path tells; nor is a copy of it."""
    far = tmp_path / "ssh"
    far.write_text(
        f"#!{sys.executable}\nimport sys, shlex\nsys.path[:0] = {sys.path!r}\n"
        "from kvg.cli.main import run\nsys.argv = shlex.split(sys.argv[-1])\nrun()\n"
    )
    far.chmod(0o755)
    monkeypatch.setenv("KVG_SSH_COMMAND", str(far))
    copy = tmp_path / "copy"
    shutil.copytree(stored.store.root, copy)
    note = (stored.store.root / "log" / "checkpoint").read_bytes()
    for url in (f"ssh://h{Path.cwd()}", f"ssh://h{stored.store.root}", str(copy), f"ssh://h{copy}"):
        assert kvg("remote", "add", "origin", url).code == 0
        for words in (("push",), ("push", "origin", "--delete", "demo"), ("remote", "gc")):
            refused = kvg(*words)
            assert refused.code == 2 and "store" in refused.err and "hint:" in refused.err
        kvg("remote", "remove", "origin")
    assert (stored.store.root / "log" / "checkpoint").read_bytes() == note
    for root in (stored.store.root, copy):
        assert {"logs", "refs", "keys", "pushing", "gc"}.isdisjoint(os.listdir(root))


def test_show_of_refused_refs_has_their_exit_code(kvg: Run, stored: Stored, tmp_path: Path) -> None:
    share = tmp_path / "share"
    kvg("remote", "add", "origin", str(share))
    assert kvg("push").code == 0 and kvg("remote", "show").code == 0
    (share / "refs" / "other").write_bytes((share / "refs" / "demo").read_bytes())
    shown = kvg("remote", "show")
    assert shown.code == 6 and "other  refused: " in shown.out and "demo  sha256:" in shown.out
    assert kvg("remote", "show", "--json").records[-1]["code"] == 6
