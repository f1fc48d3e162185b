"""The verbs that need no model, on a store with one synthetic artifact."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from kvg.digest import parse_digest
from kvg.objects.statement import PASSED, Resource, TestResult, encode_test_result
from tests.artifacts import attest, deposit, key_of
from tests.cli.conftest import Run, Stored


def test_init_again_is_harmless(kvg: Run) -> None:
    assert kvg("init").out == "initialised .kvg\n"
    again = kvg("init", "--json")
    assert again.code == 0 and again.record["created"] is False
    bare = kvg("init", "--bare", "depot", "--json").record
    assert bare["bare"] and bare["created"] and Path("depot/format").is_file()


def test_dry_runs_change_nothing(stored: Stored, kvg: Run) -> None:
    def state() -> list[tuple[str, bytes]]:
        files = (path for path in Path(".").rglob("*") if path.is_file())
        return sorted((str(path), path.read_bytes()) for path in files)

    kvg("key", "new", "peer")
    stored.store.config.set_table("model", "m", {"path": "/m", "fingerprint": stored.digest})
    before = state()
    for argv in (
        ["init", "elsewhere"],
        ["tag", "v1", "demo"],
        ["mv", "demo", "v1"],
        ["rm", "demo"],
        ["pin", "demo"],
        ["trust", "add", "peer"],
        ["config", "set", "store.codec", "2"],
        ["model", "default", "m"],
    ):
        result = kvg(*argv, "--dry-run")
        assert result.code == 0 and "dry run: nothing was changed" in result.err, argv
        assert state() == before, argv
    assert kvg("reindex", "--dry-run").code == 2


def test_first_key_of_a_store_is_trusted_and_says_so(kvg: Run) -> None:
    kvg("init")
    made = kvg("key", "new", "first")
    assert made.code == 0
    assert "made signing key" in made.err and "trusted as depositor and publisher" in made.err
    assert "trusted" not in kvg("key", "new", "second").err
    trusted = kvg("trust", "list", "--json").records
    assert [item["name"] for item in trusted if item["type"] == "trusted-key"] == ["first"]
    assert trusted[0]["roles"] == ["depositor", "publisher"]


def test_key_round_trip(kvg: Run, home: Path) -> None:
    kvg("key", "new", "one")
    pem = home / ".local/share/kvg/keys/one.pem"
    assert pem.stat().st_mode & 0o777 == 0o600
    assert kvg("key", "import", "two", str(pem)).code == 0
    keys = kvg("key", "list", "--json").records
    assert [key["name"] for key in keys] == ["one", "two"]
    assert keys[0]["keyid"] == keys[1]["keyid"]
    assert kvg("key", "export", "one").out.startswith("ssh-ed25519 ")
    assert "BEGIN PUBLIC KEY" in kvg("key", "export", "one", "--form", "pem").out
    assert kvg("key", "export", "one", "--form", "note").out.startswith("one+")
    assert kvg("key", "show", keys[0]["keyid"][:8]).code == 2  # both are meant
    assert kvg("key", "new", "one").code == 4
    assert kvg("key", "show", "nobody").code == 3
    imported = kvg("key", "import", "three", "-", stdin=b"nonsense")
    assert imported.code == 5 and "standard input" in imported.err
    pem.write_bytes(b"nonsense")
    imported = kvg("key", "import", "three", str(pem))
    assert imported.code == 5 and str(pem) in imported.err


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o602, 0o610, 0o601])
def test_a_key_file_that_others_can_read_is_not_taken_in(kvg: Run, home: Path, mode: int) -> None:
    assert kvg("key", "new", "one").code == 0
    path = Path("two.pem")
    path.write_bytes((home / ".local/share/kvg/keys/one.pem").read_bytes())
    path.chmod(mode)
    refused = kvg("key", "import", "two", "two.pem")
    assert refused.code == 6 and "others can read" in refused.err and "chmod 600" in refused.err
    assert [key["name"] for key in kvg("key", "list", "--json").records] == ["one"]
    path.chmod(0o600)
    assert kvg("key", "import", "two", "two.pem").code == 0
    missing = kvg("key", "import", "three", "none.pem")
    assert missing.code == 3 and "none.pem: no such file" in missing.err


def test_a_key_comes_through_a_pipe(kvg: Run, home: Path) -> None:
    """As ``kvg key import two <(pass show key)``: nobody else reads that."""
    import os
    import threading

    assert kvg("key", "new", "one").code == 0
    data = (home / ".local/share/kvg/keys/one.pem").read_bytes()
    os.mkfifo("pipe")
    writer = threading.Thread(target=lambda: Path("pipe").write_bytes(data))
    writer.start()
    assert kvg("key", "import", "two", "pipe").code == 0
    writer.join()


def test_encrypted_key(kvg: Run, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    assert kvg("key", "new", "locked", "--passphrase").code == 2
    Path("secret").write_text("correct horse\n")
    monkeypatch.setenv("KVG_PASSPHRASE_FILE", "secret")
    Path("secret").chmod(0o644)
    refused = kvg("key", "new", "locked", "--passphrase")
    assert refused.code == 6 and "mode 0644" in refused.err and "chmod 600 secret" in refused.err
    Path("secret").chmod(0o600)
    assert kvg("key", "new", "locked", "--passphrase", "--json").record["encrypted"] is True
    kvg("init")
    assert kvg("trust", "add", "locked").code == 0
    Path("secret").write_text("wrong\n")
    kvg("key", "new", "other")
    assert kvg("trust", "add", "other", "--key", "locked").code == 6
    monkeypatch.delenv("KVG_PASSPHRASE_FILE")
    result = kvg("trust", "add", "other", "--key", "locked")
    assert result.code == 6 and "KVG_PASSPHRASE_FD" in result.err
    monkeypatch.setenv("KVG_PASSPHRASE_COMMAND", "echo 'correct horse'")
    assert kvg("trust", "add", "other", "--key", "locked").code == 0
    monkeypatch.delenv("KVG_PASSPHRASE_COMMAND")
    reader, writer = os.pipe()
    os.write(writer, b"correct horse\n")
    os.close(writer)
    monkeypatch.setenv("KVG_PASSPHRASE_FD", str(reader))
    kvg("key", "new", "third")
    assert kvg("trust", "add", "third", "--key", "locked").code == 0


def test_key_file_signs_from_a_secret(
    kvg: Run, monkeypatch: pytest.MonkeyPatch, home: Path, tmp_path: Path
) -> None:
    from kvg.signing.keys import encode_private

    key = key_of("secret")
    path = tmp_path / "key.pem"
    path.write_bytes(encode_private(key, None))
    kvg("init")
    kvg("key", "new", "unused")
    monkeypatch.setenv("KVG_KEY_FILE", str(path))
    loose = kvg("trust", "add", "unused", "--role", "verifier")
    assert loose.code == 6 and "chmod 600" in loose.err
    path.chmod(0o600)
    refused = kvg("trust", "add", "unused", "--role", "verifier")
    assert refused.code == 6  # the store trusts another publisher


def test_trust_add(stored: Stored, kvg: Run) -> None:
    kvg("key", "new", "peer")
    Path("peer.pub").write_text(kvg("key", "export", "peer").out)
    added = kvg("trust", "add", "peer.pub", "--role", "verifier", "--json").record
    assert added["roles"] == ["verifier"]
    again = kvg("trust", "add", "peer.pub", "--json").record
    assert again["roles"] == ["depositor", "publisher", "verifier"]
    assert kvg("trust", "add", "peer.pub").code == 0
    assert kvg("trust", "add", "peer.pub", "--role", "king").code == 2
    assert kvg("trust", "add", "nobody.pub").code == 3
    line = kvg("key", "export", "first").out.strip()
    assert kvg("trust", "add", line).code == 0


def test_ls(stored: Stored, kvg: Run) -> None:
    record = kvg("ls", "--json").record
    assert record["ref"] == "demo" and record["digest"] == stored.digest
    assert record["gates"] == [] and record["previous"] == 0
    assert stored.digest in kvg("ls").out and stored.digest not in kvg("ls", tty=True).out
    assert "gates: none" in kvg("ls").out
    assert kvg("ls", "--format", "{ref}={digest} {pinned}").out == f"demo={stored.digest} false\n"
    kvg("tag", "a/b", "demo")
    assert kvg("ls", "-0").raw == b"a/b\0demo\0"
    assert kvg("ls", "--format", "{nothing}").code == 2
    assert kvg("ls", "--format", "{ref}", "--json").code == 2
    assert kvg("ls", "--graftable").out == ""
    assert kvg("ls", "--stale").out == ""


def test_show_has_the_manifest_and_the_seeds_names(stored: Stored, kvg: Run) -> None:
    record = kvg("show", "demo", "--json").record
    manifest = json.loads(kvg("cat", "demo").raw)
    for name in ("schema", "model", "engine", "tokens", "positions", "layout", "witnesses"):
        assert record[name] == manifest[name]
    assert record["digest"] == stored.digest and record["refs"] == ["demo"]
    assert set(record["verification"]) == {
        "formalProofChecked",
        "unitTestPass",
        "consistencyGated",
        "executionSignature",
    }
    assert record["verification"]["unitTestPass"] is None
    assert len(record["verification"]["executionSignature"]) == 128
    assert record["family"] is None and record["family_seed_hash"] is None
    ends: dict[str, int] = {}
    for page in record["pages"]:
        assert page["offset"] == ends.get(page["group"], 0) and page["dtype"] == "BF16"
        ends[page["group"]] = page["offset"] + page["size"]
    (attested,) = record["attestations"]
    assert attested["kind"] == "deposit" and attested["trusted"]
    assert "gates" in kvg("show", "demo").out
    assert "handbook.md" in kvg("show", "demo", "-v").out


def test_names(stored: Stored, kvg: Run) -> None:
    assert kvg("tag", "v1", "demo", "--json").record["previous"] is None
    other = deposit(stored.store, stored.store.keyring.load("first"), ref="other", ids=range(3))
    assert kvg("tag", "v1", "other").code == 4
    moved = kvg("tag", "-f", "v1", "other", "--json").record
    assert moved["digest"] == other.digest and moved["previous"] == stored.digest
    assert kvg("rev-parse", "v1@{1}").out == stored.digest + "\n"
    assert kvg("rev-parse", stored.digest[:15], stored.digest[7:15]).out == 2 * (
        stored.digest + "\n"
    )
    assert kvg("mv", "v1", "demo").code == 4
    assert kvg("mv", "v1", "v2").code == 0
    assert kvg("rev-parse", "v1").code == 3
    dry = kvg("rm", "v2", "demo", "--dry-run")
    assert dry.code == 0 and "dry run" in dry.err and kvg("rev-parse", "v2").code == 0
    assert kvg("rm", "v2", "nothing").code == 3 and kvg("rev-parse", "v2").code == 0
    assert kvg("rm", "v2").code == 0 and kvg("rev-parse", "v2").code == 3
    assert kvg("rev-parse", "v2@{1}").code == 0
    assert kvg("tag", "Bad Name", "demo").code == 2
    tokens = kvg("show", "demo", "--json").record["tokens"]["digest"]
    assert kvg("tag", "x", tokens).code == 3


def test_pins(stored: Stored, kvg: Run) -> None:
    assert kvg("pin", "demo", "--dry-run", "--json").record["changed"] is True
    assert kvg("pin", "demo", "--json").record["changed"] is True
    assert kvg("pin", "demo", "--json").record["changed"] is False
    assert kvg("ls", "--json").record["pinned"] is True
    assert kvg("unpin", "demo", "--json").record == {
        "type": "pin",
        "schema_version": 1,
        "digest": stored.digest,
        "on": False,
        "changed": True,
    }


def test_cat_gives_the_bytes_that_the_digest_names(stored: Stored, kvg: Run) -> None:
    page = kvg("show", "demo", "--json").record["pages"][0]
    raw = kvg("cat", page["digest"]).raw
    assert "sha256:" + hashlib.sha256(raw).hexdigest() == page["digest"]
    assert len(raw) == page["size"]
    record = kvg("cat", page["digest"], "--json").record
    assert base64.b64decode(record["base64"]) == raw and record["size"] == len(raw)
    refused = kvg("cat", page["digest"], tty=True)
    assert refused.code == 2 and refused.raw == b"" and "> FILE" in refused.err
    assert kvg("cat", "demo", tty=True).code == 0
    path = stored.store.objects.stored_path(page["digest"])
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-1])
    damaged = kvg("cat", page["digest"])
    assert damaged.code == 5 and damaged.raw == b""


def test_diff(stored: Stored, kvg: Run) -> None:
    key = stored.store.keyring.load("first")
    deposit(stored.store, key, ref="other", ids=(*range(1, 9), 50, 51))
    deposit(stored.store, key, ref="longer", ids=(*range(1, 9), 60))
    assert kvg("diff", "demo", "demo", "--json").record["same"] is True
    *differences, summary = kvg("diff", "other", "longer", "--json").records
    assert summary["common_tokens"] == 8 and summary["common_pages"] >= 1
    fields = {item["field"] for item in differences}
    assert {"tokens.count", "tokens.digest", "token id at 8"} <= fields
    assert "- 50" in kvg("diff", "other", "longer").out


def test_log(stored: Stored, kvg: Run) -> None:
    entries = kvg("log", "--json").records
    assert [entry["index"] for entry in entries] == list(range(len(entries)))[::-1]
    assert {entry["entry"] for entry in entries} == {"trust", "attestation", "ref"}
    mine = kvg("log", "demo", "--json").records
    assert [entry["entry"] for entry in mine] == ["ref", "attestation"]
    receipt = kvg("log", "demo", "--receipt", "--json").records[0]["receipt"]
    assert receipt.startswith("c2sp.org/tlog-proof@v1\n")
    assert kvg("log", "--since", "2999-01-01").out == ""
    assert kvg("log", "nothing").code == 3
    assert "new → " in kvg("log").out


def test_verify(stored: Stored, kvg: Run) -> None:
    good = kvg("verify")
    assert good.code == 0
    assert good.out == "1 artifact: bytes ok, signature ok, policy ok; truth not recomputed\n"
    summary = kvg("verify", "demo", "--json").record
    assert summary["artifacts"] == 1 and summary["objects"] >= 4 and summary["recomputed"] == 0
    assert kvg("verify", "demo", "--expect-digest", stored.digest[:20]).code == 0
    assert kvg("verify", "demo", "--expect-digest", "sha256:000000").code == 4
    assert kvg("verify", "--expect-digest", stored.digest).code == 2
    assert kvg("verify", "nothing").code == 3
    missing = kvg("verify", "--require", "test", "--json")
    assert missing.code == 6
    assert missing.records[0]["kind"] == "untrusted" and not missing.records[-1]["policy_ok"]


def test_verify_goes_on_and_the_most_severe_decides(stored: Stored, kvg: Run) -> None:
    page = kvg("show", "demo", "--json").record["pages"][0]
    stored.store.objects.stored_path(page["digest"]).unlink()
    result = kvg("verify", "--json")
    assert result.code == 5 and result.records[-1]["bytes_ok"] is False
    assert kvg("verify", "--require", "test").code == 6
    assert kvg("verify", "--require", "test").out.count("\n") == 3


def test_status(stored: Stored, kvg: Run) -> None:
    assert kvg("status").out == "1 ref; no remote; model none; gates required: none\n"
    record = kvg("status", "--json").record
    assert record["refs"] == 1 and record["model"] is None and record["keys"] == 1
    assert "origin" in kvg("status", "-v").out


def test_reindex(stored: Stored, kvg: Run) -> None:
    before = kvg("ls", "--json").out
    index = Path(".kvg/index.lmdb/data.mdb")
    index.write_bytes(b"nonsense" * 4096)
    assert kvg("reindex", "--json").record["refs"] == 1
    assert kvg("ls", "--json").out == before


def test_config_layers(stored: Stored, kvg: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def origin(*argv: str) -> tuple[str, object]:
        found = kvg("config", "list", "--show-origin", "--json", *argv).records
        (entry,) = [item for item in found if item["key"] == "core.device"]
        return entry["origin"], entry["value"]

    assert origin() == ("default", "auto")
    assert kvg("config", "set", "core.device", "cuda:1", "--user").code == 0
    assert origin() == ("user", "cuda:1")
    assert kvg("config", "set", "core.device", "cuda:0").code == 0
    assert origin() == ("store", "cuda:0")
    monkeypatch.setenv("KVG_DEVICE", "cpu")
    assert origin() == ("environment", "cpu")
    assert origin("--device", "auto") == ("flag", "auto")
    assert kvg("config", "get", "core.device").out == "cpu\n"
    assert (
        "environment\tKVG_DEVICE\tcore.device = cpu" in kvg("config", "list", "--show-origin").out
    )
    monkeypatch.setenv("KVG_DEVICE", "gpu")
    assert kvg("init").code == 2


def test_a_gate_that_ran_without_a_sandbox_says_so_wherever_it_is_shown(
    stored: Stored, kvg: Run
) -> None:
    key = stored.store.keyring.load("first")  # type: ignore[union-attr]
    bare = TestResult(PASSED, "test:cmd", (Resource("sandbox: none"),))
    held = TestResult(PASSED, "test:pytest", (Resource("sandbox: bubblewrap"),))
    deposit(stored.store, key, ref="one", ids=range(60, 90), gates=[bare, held])
    shown = "test:cmd (sandbox: none), test:pytest"
    assert f"gates: {shown}" in kvg("ls").out
    assert re.search(rf"gates +{re.escape(shown)}\n", kvg("show", "one").out)
    assert f"gates: {shown}" in kvg("audit").out
    record = kvg("show", "one", "--json").record
    assert record["unenclosed"] == ["test:cmd"]
    details = [item["detail"] for item in record["attestations"]]
    assert [item.get("sandbox") for item in details] == [None, "none", "bubblewrap"]
    again = replace(bare, configuration=(Resource("sandbox: bubblewrap"),))
    digest = parse_digest(record["digest"], what="digest")
    attest(stored.store, key, digest, encode_test_result(digest, again))
    assert kvg("show", "one", "--json").record["unenclosed"] == []


def test_config_refuses_what_means_nothing(stored: Stored, kvg: Run) -> None:
    assert "store.codec?" in kvg("config", "set", "store.codek", "1").err
    assert kvg("config", "set", "store.codec", "7").code == 2
    assert kvg("config", "set", "core.jobs", "many").code == 2
    assert kvg("config", "set", "core.device", "tpu").code == 2
    assert kvg("config", "set", "store.log", "x").code == 2
    assert kvg("config", "get", "default.model").code == 3
    for key, values in (
        ("core.jobs", ("0", "-1", "1.5", "nan", "inf", "1e400")),
        ("core.lock-wait", ("-1", "nan", "inf")),
        ("deposit.require", ("", " ")),
        ("freshness.schema", ("\udcff",)),
    ):
        for value in values:
            assert kvg("config", "set", key, value).code == 2, (key, value)
    assert kvg("status").code == 0
    assert kvg("config", "set", "core.color", "always").code == 0
    assert "\x1b[" in kvg("key", "list").out
    Path(".kvg/config.toml").write_text("not toml")
    assert kvg("status").code == 5


@pytest.mark.parametrize(
    "value", ["seeds", "test", "formal|test", "test:pytest", "consistency:88", '["test", "formal"]']
)
def test_a_policy_names_gates_that_a_deposit_can_pass(stored: Stored, kvg: Run, value: str) -> None:
    assert kvg("config", "set", "deposit.require", value).code == 0


@pytest.mark.parametrize(
    "value",
    [
        "nonsense",
        "test|nonsense",
        '["test", "nonsense"]',
        "test,formal",
        "consistency:1",
        "true",
        "[]",
    ],
)
def test_a_policy_that_nothing_could_meet_is_refused(stored: Stored, kvg: Run, value: str) -> None:
    refused = kvg("config", "set", "deposit.require", value)
    assert refused.code == 2 and "deposit.require" in refused.err
    assert value == "[]" or "one of seeds, test, formal, consistency" in refused.err
    assert kvg("config", "get", "deposit.require").code == 3


def test_a_setting_is_taken_out(stored: Stored, kvg: Run) -> None:
    assert kvg("config", "set", "deposit.require", "test").code == 0
    assert kvg("config", "unset", "deposit.require", "--dry-run").code == 0
    assert kvg("config", "get", "deposit.require").out == "test\n"
    done = kvg("config", "unset", "deposit.require", "--json").record
    assert (done["key"], done["value"], done["origin"]) == ("deposit.require", None, "store")
    assert kvg("config", "get", "deposit.require").code == 3
    assert kvg("config", "unset", "deposit.require").code == 3
    kvg("config", "set", "core.color", "never", "--user")
    assert kvg("config", "unset", "core.color").code == 3
    assert "core.color not set" in kvg("config", "unset", "core.color", "--user").out
    path = Path(".kvg/config.toml")
    path.write_text(path.read_text() + '\n[depozit]\nrequire = "test"\n[core]\njobs = 0\n')
    assert kvg("config", "unset", "core.jobs").code == 0  # which bars every other command
    assert kvg("config", "unset", "depozit.require").code == 0
    assert kvg("verify").code == 0


@pytest.mark.parametrize("key", ["store.log", "store.shared", "remote.r.url", "model.m.path"])
def test_what_nothing_can_be_without_stays(stored: Stored, kvg: Run, key: str) -> None:
    kvg("remote", "add", "r", "elsewhere")
    before = Path(".kvg/config.toml").read_text()
    assert kvg("config", "unset", key).code == 2
    assert Path(".kvg/config.toml").read_text() == before


def test_a_wrong_setting_does_not_bar_its_own_repair(stored: Stored, kvg: Run) -> None:
    path = Path(".kvg/config.toml")
    before = path.read_text()
    for line in ("jobs = 0", "lock-wait = -1", 'device = "tpu"', 'jobs = "many"'):
        path.write_text(before + f"\n[core]\n{line}\n")
        refused = kvg("status")
        assert refused.code == 2 and ("config.toml" in refused.err or "tpu" in refused.err), line
        key = "core." + line.partition(" ")[0]
        right = {"core.jobs": "2", "core.lock-wait": "1", "core.device": "cpu"}[key]
        assert kvg("config", "set", key, right).code == 0, line
        assert kvg("status").code == 0


def test_a_pin_is_taken_off_by_a_name_that_is_gone(stored: Stored, kvg: Run) -> None:
    assert kvg("tag", "kept", "demo").code == kvg("pin", "kept").code == 0
    assert kvg("rm", "kept").code == 0
    assert kvg("pin", "kept").code == 3
    assert kvg("unpin", "kept", "--json").record["digest"] == stored.digest
    assert kvg("unpin", "kept").code == 3 and kvg("unpin", "never").code == 3


@pytest.mark.parametrize("form", ["{ref", "ref}", "{ref.__class__}", "{}", "\udcff"])
def test_a_format_that_is_none(stored: Stored, kvg: Run, form: str) -> None:
    assert kvg("ls", "--format", form).code == 2


def test_models_without_torch(stored: Stored, kvg: Run) -> None:
    assert kvg("model", "list").out == ""
    values = {"path": "/m", "architecture": "Tiny", "dtype": "BF16", "parameters": 135_000_000}
    for name in ("a", "b"):
        stored.store.config.set_table("model", name, {**values, "fingerprint": stored.digest})
    first, second = kvg("model", "list", "--json").records
    assert (first["name"], first["default"], second["default"]) == ("a", True, False)
    assert kvg("model", "default", "b").out == "b  tiny 135M BF16  (default)\n"
    shown = kvg("model", "show", "b").out.splitlines()
    assert shown[1:] == ["  /m", f"  {stored.digest}"]
    assert kvg("model", "show", "b", "--json").record["default"] is True
    assert kvg("model", "show", "c").code == 3
    assert kvg("model", "default", "c").code == 3


def test_completion(stored: Stored, kvg: Run) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "kvg" in kvg("completion", shell).out
    assert kvg("completion", "dos").code == 2

    def words(*given: str) -> list[str]:
        return kvg("__complete", "--", *given).out.split()

    assert words("rep") == ["replay"]
    assert words("key", "") == ["new", "list", "show", "import", "export", "rekey"]
    assert words("show", "") == ["demo"] and words("key", "show", "") == []
    assert "--samples" in words("replay", "--") and "--json" in words("replay", "--")
    assert words("nonsense", "") == []


def test_untrusted_signer_is_shown_as_such(stored: Stored, kvg: Run) -> None:
    deposit(stored.store, key_of("mallory"), ref="bad", ids=range(5))
    shown = kvg("show", "bad", "--json").record
    assert shown["attestations"][0]["trusted"] is False
    assert shown["verification"]["executionSignature"] is None
    assert kvg("verify", "bad").code == 6


def test_quiet_holds_under_json_too(stored: Stored, kvg: Run) -> None:
    assert "dry run" in kvg("tag", "x", "demo", "--dry-run", "--json").err
    assert kvg("tag", "x", "demo", "--dry-run", "--json", "--quiet").err == ""
