"""Freshness contracts: attested, and a stale artifact is a miss that says why."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kvg.digest import sha256
from kvg.errors import UsageError
from kvg.flow.freshness import depends_of, stale_reason
from kvg.objects.contract import Contract, contract_of_proof
from kvg.objects.statement import PASSED, Resource, TestResult
from tests import models
from tests.flow.conftest import Ran

Kvg = Callable[..., Ran]
TEXT = "The rate is 3 percent."
GRAFT = ("graft", "a", "--prompt", "x", "--max-tokens", "1")


def stale(kvg: Kvg) -> list[str]:
    return [json.loads(line)["stale"] for line in kvg("ls", "--stale", "--json").out.splitlines()]


def test_a_file_that_changed(user: models.User, kvg: Kvg) -> None:
    folder = user.folder / "data"
    (folder / "rates").mkdir(parents=True)
    rates = folder / "rates" / "today.csv"
    rates.write_text("3")
    assert kvg("deposit", "a", "--text", TEXT, "--depends", "data/rates/today.csv").code == 0
    shown = json.loads(kvg("show", "a", "--json").out)
    assert shown["attestations"][0]["detail"]["depends"] == ["data/rates/today.csv"]
    assert kvg(*GRAFT).code == 0 and stale(kvg) == []
    rates.write_text("4")
    missed = kvg(*GRAFT, "--json")
    assert missed.code == 3 and "today.csv has changed" in json.loads(missed.err)["message"]
    assert kvg("ask", "a", "What is the rate?", "--max-tokens", "1").code == 3
    assert kvg("logits", "a", "--prompt", "x").code == 3 and kvg("logits", "a").code == 3
    assert stale(kvg) == ["stale: data/rates/today.csv has changed"]
    assert kvg("-C", "data", "ls", "--stale").out.startswith("a ")
    fresh = json.loads(kvg(*GRAFT, "--or-fresh", "tiny", "--json").out)
    assert fresh["status"] == "CACHE_MISS"
    rates.write_text("3")
    assert kvg(*GRAFT).code == 0 and stale(kvg) == []


def test_what_lies_in_the_place_of_a_file_is_not_that_file(user: models.User, kvg: Kvg) -> None:
    """Nor is none: a clone, which has none of them, gives nothing that depends on one."""
    rates = user.folder / "rates.csv"
    rates.write_text("3")
    assert kvg("deposit", "a", "--text", TEXT, "--depends", "rates.csv").code == 0
    rates.unlink()
    gone = "stale: rates.csv, on which it depends, is not here; put it at "
    gone += f"{rates}, or deposit it again"
    missed = kvg(*GRAFT, "--json")
    assert missed.code == 3 and gone in json.loads(missed.err)["message"]
    assert stale(kvg) == [gone]
    assert json.loads(kvg("show", "a", "--json").out)["stale"] == gone
    assert gone in kvg("show", "a").out and gone in kvg("audit").out
    audited = json.loads(kvg("audit", "--json").out)
    assert [item["stale"] for item in audited["artifacts"]] == [gone]
    rates.write_text("3")
    assert kvg(*GRAFT).code == 0 and stale(kvg) == []
    assert json.loads(kvg("show", "a", "--json").out)["stale"] is None
    rates.unlink()
    rates.mkdir()
    assert kvg(*GRAFT).code == 3 and stale(kvg) == ["stale: rates.csv has changed"]
    rates.rmdir()
    os.mkfifo(rates)
    assert kvg(*GRAFT).code == 3
    rates.unlink()
    rates.symlink_to("nowhere")
    assert stale(kvg) == ["stale: rates.csv has changed"]


def test_a_stale_one_is_deposited_again_on_new_terms(user: models.User, kvg: Kvg) -> None:
    """The text is the same, so nothing is computed: what is signed is what it depends on now."""
    rates = user.folder / "rates.csv"
    rates.write_text("3")
    again = ("deposit", "a", "--text", TEXT, "--depends", "rates.csv", "--json")
    assert kvg(*again).code == 0
    size = user.store.log.size
    assert kvg(*again).code == 0 and user.store.log.size == size
    rates.write_text("4")
    told = kvg("deposit", "a", "--text", TEXT)
    assert "rates.csv has changed; --valid-until, --depends" in told.err and len(stale(kvg)) == 1
    renewed = json.loads(kvg(*again).out)
    assert (renewed["unchanged"], renewed["tokens_computed"]) == (True, 0)
    assert stale(kvg) == [] and kvg(*GRAFT).code == 0
    assert json.loads(kvg("show", "a", "--json").out)["stale"] is None
    rates.write_text("5")
    assert stale(kvg) == ["stale: rates.csv has changed"] and kvg(*GRAFT).code == 3


def test_a_time_that_is_over(user: models.User, kvg: Kvg, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kvg("deposit", "a", "--text", TEXT, "--valid-until", "1d").code == 0
    assert kvg(*GRAFT).code == 0
    import time

    now = time.time()
    monkeypatch.setattr("kvg.flow.freshness.time.time", lambda: now + 2 * 86400)
    missed = kvg(*GRAFT, "--json")
    assert missed.code == 3 and "stale: valid until" in json.loads(missed.err)["message"]
    assert len(stale(kvg)) == 1 and kvg("verify", "a").code == 0


def test_another_schema_version(user: models.User, kvg: Kvg) -> None:
    assert kvg("deposit", "a", "--text", TEXT, "--schema-version", "7").code == 0
    shown = json.loads(kvg("show", "a", "--json").out)
    assert shown["attestations"][0]["detail"]["schema_version"] == "7"
    assert kvg(*GRAFT).code == 0
    kvg("config", "set", "freshness.schema", "7")
    assert kvg(*GRAFT).code == 0
    kvg("config", "set", "freshness.schema", "8")
    assert kvg(*GRAFT).code == 3
    assert stale(kvg) == ["stale: schema version 7, the store's is 8"]


def test_usage(user: models.User, kvg: Kvg) -> None:
    assert kvg("deposit", "a", "--text", TEXT, "--depends", "absent").code == 3
    assert kvg("deposit", "a", "--text", TEXT, "--schema-version", " ").code == 2
    kvg("config", "set", "freshness.schema", "8")
    born_stale = kvg("deposit", "b", "--text", TEXT, "--schema-version", "7")
    assert born_stale.code == 2 and "stale from the start" in born_stale.err


def test_a_contract_in_a_test_result(user: models.User) -> None:
    file = Resource("a b.csv", "sha256:" + "1" * 64)  # type: ignore[arg-type]
    contract = Contract(1_700_000_000, (file,), "2")
    said = TestResult(PASSED, "method", (Resource("program"), *contract.resources()))
    assert contract_of_proof(said) == contract
    assert contract_of_proof(TestResult(PASSED, "method")) == Contract()
    gone = stale_reason(user.store, user.folder, contract, now=1_600_000_000)
    assert gone is not None and "a b.csv, on which it depends, is not here" in gone


@pytest.mark.parametrize(
    "name", ["../x", "/x", "a/../../x", "..", ".", "/", "a\0b", "depends on nothing"]
)
def test_what_others_attested_of_a_file_that_can_t_be_checked_is_stale(
    user: models.User, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing outside is opened for it, whether or not it is as they say."""
    (user.folder.parent / "x").write_text("x")
    (user.folder / "depends on nothing").write_text("x")
    digest = None if name == "depends on nothing" else sha256(b"x")
    monkeypatch.setattr("kvg.flow.freshness._digest", lambda path: pytest.fail(str(path)))
    said = TestResult(PASSED, "method", (Resource(f"depends {name}", digest),))
    for contract in (contract_of_proof(said), Contract(depends=(Resource(name, digest),))):
        reason = stale_reason(user.store, user.folder, contract)
        assert reason is not None and f"{name}, on which it depends, can't be checked" in reason


@pytest.mark.parametrize("until", ["soon", "", "9" * 5000, "-1"])
def test_a_time_that_can_t_be_read_is_over(user: models.User, until: str) -> None:
    said = TestResult(PASSED, "method", (Resource(f"valid until {until}"),))
    reason = stale_reason(user.store, user.folder, contract_of_proof(said))
    assert reason == "stale: valid until 1970-01-01 00:00:00Z"
    assert stale_reason(user.store, user.folder, Contract(-(2**53) + 1)) == reason


def test_a_file_that_nobody_could_find_again_is_refused(user: models.User, kvg: Kvg) -> None:
    """Outside the folder of the store and the current one; and nothing is stored."""
    outside = user.folder.parent / "outside.csv"
    outside.write_text("3")
    (user.folder / "p.py").write_text("def solve(a): return a\n")
    deposit = ("deposit", "a", "--text", TEXT)
    add = ("method", "add", "--text", "Say 7.", "--program", "p.py", "--checker", "p.py")
    learn = ("solve", "Say 7.", "--model", "tiny", "--checker", "p.py", "--learn")
    for words in (deposit, add, learn):
        for name in ("../outside.csv", str(outside), "data/../../outside.csv"):
            (user.folder / "data").mkdir(exist_ok=True)
            refused = kvg(*words, "--depends", name, "--json")
            assert refused.code == 2, words
            assert f"outside {user.folder}," in json.loads(refused.err.splitlines()[-1])["message"]
    assert user.store.refs() == {} and user.store.log.size == 0


def test_ways_of_naming_a_file(
    user: models.User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it is written and whatever links are on the way, the name found leads to it."""
    inside, elsewhere = user.folder / "data", tmp_path / "elsewhere"
    (elsewhere / "deep").mkdir(parents=True)
    inside.mkdir()
    (inside / "x").write_text("in")
    (elsewhere / "x").write_text("else")
    (user.folder / "up").symlink_to(elsewhere / "deep")
    (user.folder / "linked").symlink_to(elsewhere / "x")
    (tmp_path / "alias").symlink_to(user.folder)
    settings = user.settings

    def name(path: str | Path, cwd: Path = user.folder) -> str:
        (found,) = depends_of(user.store, replace(settings, cwd=cwd), [Path(path)])
        assert stale_reason(user.store, cwd, Contract(depends=(found,))) is None
        return found.name

    assert name("./data/../data/x") == name(inside / "x") == name("x", inside) == "data/x"
    assert name(tmp_path / "alias/data/x") == name("data/x", tmp_path / "alias") == "data/x"
    (user.folder / "near").symlink_to(inside / "x")
    assert name("near") == "near"  # what it leads to is watched by the name that leads there
    assert name("x", elsewhere) == "x"  # the current folder, where it has to be used again
    with pytest.raises(UsageError, match="outside"):
        name("up/../x")  # that is elsewhere/x, whatever it looks like
    with pytest.raises(UsageError, match="outside"):
        name("linked")  # and so is that


@pytest.mark.parametrize("name", [".", "", "pipe"])
def test_what_is_there_and_no_plain_file_is_called_so(
    user: models.User, kvg: Kvg, name: str
) -> None:
    os.mkfifo(user.folder / "pipe")
    done = kvg("deposit", "a", "--text", TEXT, "--depends", name, "--json")
    assert done.code == 3 and "not a plain file" in json.loads(done.err)["message"]
