"""Freshness contracts: attested, and a stale artifact is a miss that says why."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest

from kvg.flow.freshness import Contract, contract_of_proof, stale_reason
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
    assert stale(kvg) == ["stale: data/rates/today.csv has changed"]
    assert kvg("-C", "data", "ls", "--stale").out.startswith("a ")
    fresh = json.loads(kvg(*GRAFT, "--or-fresh", "tiny", "--json").out)
    assert fresh["status"] == "CACHE_MISS"
    rates.write_text("3")
    assert kvg(*GRAFT).code == 0 and stale(kvg) == []


def test_what_lies_in_the_place_of_a_file_is_not_that_file(user: models.User, kvg: Kvg) -> None:
    """A file that is not there says nothing: a clone has none of them."""
    rates = user.folder / "rates.csv"
    rates.write_text("3")
    assert kvg("deposit", "a", "--text", TEXT, "--depends", "rates.csv").code == 0
    rates.unlink()
    assert kvg(*GRAFT).code == 0 and stale(kvg) == []
    rates.mkdir()
    assert kvg(*GRAFT).code == 3 and stale(kvg) == ["stale: rates.csv has changed"]
    rates.rmdir()
    os.mkfifo(rates)
    assert kvg(*GRAFT).code == 3
    rates.unlink()
    rates.symlink_to("nowhere")
    assert stale(kvg) == ["stale: rates.csv has changed"]


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


def test_a_contract_in_a_test_result(user: models.User) -> None:
    file = Resource("a b.csv", "sha256:" + "1" * 64)  # type: ignore[arg-type]
    contract = Contract(1_700_000_000, (file,), "2")
    said = TestResult(PASSED, "method", (Resource("program"), *contract.resources()))
    assert contract_of_proof(said) == contract
    assert contract_of_proof(TestResult(PASSED, "method")) == Contract()
    outside = Contract(
        depends=(Resource("../x", file.digest), Resource("/etc/passwd", file.digest))
    )
    assert stale_reason(user.store, user.folder, outside) is None
    assert stale_reason(user.store, user.folder, contract, now=1_600_000_000) is None
