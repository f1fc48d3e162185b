"""``kvg trust`` with several keys: removal, revocation, thresholds, and who must sign."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kvg.errors import Untrusted
from kvg.flow import trust as trusting
from kvg.objects.statement import PASSED, Resource, TestResult, encode_test_result
from kvg.trust import Keyring, TrustFile
from kvg.verify import verify_artifact
from tests.artifacts import attest, deposit, key_of
from tests.cli.conftest import Run, Stored


@pytest.fixture
def keys(stored: Stored, kvg: Run) -> list[str]:
    """The key ids of ``first`` (the store's own), ``second`` and ``third``."""
    kvg("key", "new", "second")
    kvg("key", "new", "third")
    by_name = {item["name"]: item["keyid"] for item in kvg("key", "list", "--json").records}
    return [by_name[name] for name in ("first", "second", "third")]


def hide(home: Path, name: str) -> None:
    """Take a private key off this machine."""
    folder = home / ".local/share/kvg/keys"
    shutil.move(folder / f"{name}.pem", home / f"{name}.away")


def test_remove(stored: Stored, kvg: Run, keys: list[str]) -> None:
    assert kvg("trust", "add", "second").code == 0
    left = kvg("trust", "remove", "second", "--role", "publisher", "--json").record
    assert left["roles"] == ["depositor"] and left["name"] == "second"
    gone = kvg("trust", "remove", keys[1][:8], "--json").record
    assert gone["roles"] == [] and gone["keyid"] == keys[1]
    kvg("trust", "add", "third", "--role", "verifier")
    assert "trusted no longer  third" in kvg("trust", "remove", "third").out
    assert kvg("trust", "remove", "second").code == 3
    last = kvg("trust", "remove", "first")
    assert last.code == 2 and "too few publishers" in last.err
    assert kvg("verify").code == 0


def test_what_a_removed_key_signed_counts_no_more(
    stored: Stored, kvg: Run, keys: list[str]
) -> None:
    kvg("trust", "add", "second")
    assert kvg("trust", "remove", "first").code == 0
    refused = kvg("verify", "demo")
    assert refused.code == 6 and "0 of 1 trusted depositors" in refused.out


def test_a_change_beside_another_is_made_of_what_that_left(
    stored: Stored, kvg: Run, keys: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sign, beside = trusting._signed, ["verifier"]

    def signed(*given: object) -> TrustFile:
        made = sign(*given)  # type: ignore[arg-type]
        for role in [beside.pop()] if beside else []:
            assert kvg("trust", "add", "second", "--role", role).code == 0
        return made

    monkeypatch.setattr(trusting, "_signed", signed)
    assert kvg("trust", "threshold", "verifier=1").code == 0
    trust = stored.store.trust
    assert trust.version == 3 and trust.threshold("verifier") == 1 and len(trust.keys) == 2


def test_revocation_keeps_the_past(stored: Stored, kvg: Run, keys: list[str], home: Path) -> None:
    kvg("trust", "add", "second")
    done = kvg("trust", "revoke", "first", "--json").record
    assert done["type"] == "revocation" and done["origin"] == stored.store.log.origin
    assert done["size"] == stored.store.log.size - 2  # the trust and revoke entries came after
    assert kvg("verify", "demo").code == 0
    first = Keyring(home / ".local/share/kvg/keys").load("first")
    deposit(stored.store, first, ref="late", ids=range(40, 60))
    late = kvg("verify", "late")
    assert late.code == 6 and "is revoked" in late.out
    assert kvg("verify", "demo").code == 0
    again = kvg("trust", "revoke", "first", "--json").record
    assert again == done  # a revocation is not moved to later
    later = kvg("trust", "revoke", "first", "--size", "9999")
    assert later.code == 2 and f"from entry {done['size']}" in later.err
    listed = kvg("trust", "list", "--json").records
    assert [item["size"] for item in listed if item["type"] == "revocation"] == [done["size"]]
    assert "revoked from entry" in kvg("trust", "list").out
    assert [item["entry"] for item in kvg("log", "--json").records].count("revoke") == 1
    assert kvg("trust", "add", "first").code in (0, 2)


def test_a_revocation_from_the_start_takes_everything(
    stored: Stored, kvg: Run, keys: list[str]
) -> None:
    kvg("trust", "add", "second")
    assert kvg("trust", "revoke", keys[0], "--size", "0").code == 0
    assert kvg("verify", "demo").code == 6
    assert kvg("trust", "revoke", "second", "--origin", "elsewhere").code == 2


def test_a_revoked_key_gets_no_role(stored: Stored, kvg: Run, keys: list[str]) -> None:
    for role in ("verifier", "depositor", "publisher"):
        kvg("trust", "add", "second", "--role", role)
    kvg("trust", "revoke", "second")
    before = stored.store.log.size
    for role in ("verifier", "depositor", "publisher"):
        refused = kvg("trust", "add", "second", "--role", role)
        assert refused.code == 2 and "is revoked" in refused.err and "kvg key new" in refused.err
    assert stored.store.log.size == before


def test_what_is_to_be_replayed_names_who_may(stored: Stored, kvg: Run, keys: list[str]) -> None:
    kvg("trust", "threshold", "verifier=1")
    assert "kvg trust add KEY --role verifier" in kvg("verify", "demo").err
    kvg("trust", "add", "second", "--role", "verifier")
    told = kvg("verify", "demo").err
    assert "trust add" not in told and keys[1][:12] in told
    kvg("trust", "revoke", "second")
    assert "kvg trust add KEY --role verifier" in kvg("verify", "demo").err


def test_a_revoked_key_does_not_sign_its_own_revocation(
    stored: Stored, kvg: Run, keys: list[str]
) -> None:
    kvg("trust", "add", "second")
    refused = kvg("trust", "revoke", "first", "--key", "first")
    assert refused.code == 6 and "0 of the 1 publishers" in refused.err
    alone = kvg("trust", "revoke", "second", "--key", "second")
    assert alone.code == 6


def test_thresholds(stored: Stored, kvg: Run, keys: list[str], home: Path) -> None:
    shown = {item["role"]: item["needed"] for item in kvg("trust", "threshold", "--json").records}
    assert shown == {"depositor": 1, "verifier": 0, "publisher": 1}
    assert kvg("trust", "threshold", "publisher=2").code == 2  # there is one
    kvg("trust", "add", "second")
    version = kvg("trust", "list", "--json").records[-1]["version"]
    both = kvg("trust", "threshold", "publisher=2", "verifier=1", "--json").records
    assert both[0]["version"] == version + 1
    assert {item["role"]: item["needed"] for item in both}["verifier"] == 1
    assert kvg("trust", "threshold", "verifier=0").code == 0  # both keys are at hand
    hide(home, "second")
    refused = kvg("trust", "threshold", "publisher=1")
    assert refused.code == 6 and "1 of the 2 publishers" in refused.err
    assert "hint: bring the other publishers' keys together" in refused.err
    assert kvg("trust", "threshold", "depositor=0").code == 2
    for wrong in ("king=1", "verifier", "verifier=two", "verifier=99999", "verifier=-1"):
        assert kvg("trust", "threshold", wrong).code == 2


def test_a_threshold_that_no_keys_can_meet_is_said_aloud(
    stored: Stored, kvg: Run, keys: list[str]
) -> None:
    done = kvg("trust", "threshold", "verifier=9")
    assert done.code == 0
    assert "verifier=9: 0 trusted keys have this role" in done.err
    assert "kvg trust add KEY --role verifier" in done.err
    shown = {item["role"]: item for item in kvg("trust", "threshold", "--json").records}
    assert (shown["verifier"]["needed"], shown["verifier"]["trusted"]) == (9, 0)
    assert "verifier=9" in kvg("trust", "threshold").err  # as long as it is so
    assert kvg("verify", "demo").code == 6
    assert "trusted keys" not in kvg("trust", "threshold", "verifier=0").err


def test_a_revoked_key_does_not_count_towards_what_can_be_met(
    stored: Stored, kvg: Run, keys: list[str]
) -> None:
    kvg("trust", "add", "second", "--role", "verifier")
    assert "trusted key" not in kvg("trust", "threshold", "verifier=1").err
    assert kvg("trust", "revoke", "second").code == 0
    assert "0 trusted keys have this role" in kvg("trust", "threshold").err


def test_two_replays_by_two_keys(stored: Stored, kvg: Run, keys: list[str]) -> None:
    store = stored.store
    auditors = [key_of("one"), key_of("two")]
    for name, key in zip(("one", "two"), auditors, strict=True):
        from kvg.signing.keys import encode_public

        Path(f"{name}.pub").write_text(encode_public(key.public, "openssh", name))
        assert kvg("trust", "add", f"{name}.pub", "--role", "verifier").code == 0
    assert kvg("trust", "threshold", "verifier=2").code == 0
    said = TestResult(PASSED, "replay", configuration=(Resource("pages 6 of 6"),))
    payload = encode_test_result(stored.digest, said)
    for key in auditors:
        assert kvg("verify", "demo").code == 6
        with pytest.raises(Untrusted, match="of 2 trusted verifiers"):
            verify_artifact(store, stored.digest)
        attest(store, key, stored.digest, payload)
        attest(store, key, stored.digest, payload)
    assert kvg("verify", "demo").code == 0
    verify_artifact(store, stored.digest)


def test_dry_runs(stored: Stored, kvg: Run, keys: list[str]) -> None:
    kvg("trust", "add", "second")
    before = kvg("trust", "list", "--json").out
    for argv in (
        ["trust", "remove", "second"],
        ["trust", "revoke", "second"],
        ["trust", "threshold", "publisher=2"],
    ):
        result = kvg(*argv, "--dry-run")
        assert result.code == 0 and "dry run: nothing was changed" in result.err
    assert kvg("trust", "list", "--json").out == before
