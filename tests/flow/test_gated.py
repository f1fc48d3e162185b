"""Deposits that have to pass gates first."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable

import pytest

from tests import models
from tests.flow.conftest import Ran

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
Kvg = Callable[..., Ran]
TEXT = "with opens a file and closes it at the end of the block"
RIGHT = "python-assert:'closes' in answer"


def test_what_passed_is_attested_and_can_be_required(user: models.User, kvg: Kvg) -> None:
    done = json.loads(kvg("deposit", "a", "--text", TEXT, "--gate", RIGHT, "--json").out)
    assert done["gates"] == ["test:python-assert"]
    shown = json.loads(kvg("show", "a", "--json").out)
    assert shown["gates"] == ["test:python-assert"]
    assert shown["verification"]["unitTestPass"] is True
    assert kvg("verify", "a", "--require", "test").code == 0
    assert kvg("verify", "a", "--require", "consistency").code == 6
    assert kvg("graft", "a", "--prompt", "x", "--max-tokens", "1", "--require", "test").code == 0
    assert kvg("gc").code == 0 and kvg("fsck").code == 0


def test_a_rejected_deposit_leaves_nothing(user: models.User, kvg: Kvg) -> None:
    before, size = set(user.store.objects.all()), user.store.log.size
    refused = kvg("deposit", "a", "--text", TEXT, "--gate", RIGHT, "--gate", "cmd:true", "--json")
    assert refused.code == 8 and "passes anything" in json.loads(refused.err)["message"]
    refused = kvg("deposit", "a", "--text", TEXT, "--gate", "consistency", "--json")
    assert refused.code == 8 and "needs a model" in json.loads(refused.err)["message"]
    assert set(user.store.objects.all()) == before and user.store.log.size == size
    assert kvg("show", "a").code == 3


def test_a_policy_of_the_store(user: models.User, kvg: Kvg) -> None:
    assert kvg("config", "set", "deposit.require", "test").code == 0
    refused = kvg("deposit", "a", "--text", TEXT, "--json")
    assert refused.code == 8 and "requires gates" in json.loads(refused.err)["message"]
    assert kvg("deposit", "a", "--text", TEXT, "--gate", RIGHT).code == 0
    assert kvg("verify", "a").code == 0


def test_a_text_that_is_there_gains_what_it_passes_now(user: models.User, kvg: Kvg) -> None:
    assert json.loads(kvg("deposit", "a", "--text", TEXT, "--json").out)["gates"] == []
    again = json.loads(kvg("deposit", "a", "--text", TEXT, "--gate", RIGHT, "--json").out)
    assert again["unchanged"] and again["gates"] == ["test:python-assert"]
    assert kvg("verify", "a", "--require", "test").code == 0


def test_the_answer_of_a_chat_is_judged(user: models.User, kvg: Kvg) -> None:
    chat = [
        {"role": "user", "content": "What is 6 times 7?"},
        {"role": "assistant", "content": "42"},
    ]
    (user.settings.cwd / "chat.json").write_text(json.dumps(chat))
    gate = ("--gate", "python-assert:int(answer) == 42 and '6 times 7' in text")
    assert kvg("deposit", "c", "--chat", "chat.json", *gate).code == 0
    wrong = ("--gate", "python-assert:int(answer) == 41")
    assert kvg("deposit", "d", "--chat", "chat.json", *wrong).code == 8


def test_the_family_of_a_deposit(user: models.User, kvg: Kvg) -> None:
    (user.folder / "problem.txt").write_text("Sum the integers from 3 to 9.")
    done = json.loads(kvg("deposit", "a", "--text", TEXT, "--family", "problem.txt", "--json").out)
    shown = json.loads(kvg("show", "a", "--json").out)
    (family,) = [json.loads(line) for line in kvg("family", "list", "--json").out.splitlines()]
    assert shown["family"] == family["family"]
    assert shown["family_seed_hash"] == family["family_seed_hash"]
    assert family["artifacts"] == [done["digest"]] and family["methods"] == []
    assert kvg("gc").code == 0
    assert kvg("family", "show", family["family"]).code == 0
    assert kvg("solve", "Sum the integers from 3 to 9.").code == 3
