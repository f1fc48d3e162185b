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


def test_a_rejected_deposit_leaves_nothing_but_its_evidence(user: models.User, kvg: Kvg) -> None:
    kvg("key", "new", "first")
    before, size = set(user.store.objects.all()), user.store.log.size
    refused = kvg("deposit", "a", "--text", TEXT, "--gate", RIGHT, "--gate", "cmd:true", "--json")
    error = json.loads(refused.err.splitlines()[-1])
    assert refused.code == 8 and "passes anything" in error["message"]
    assert user.store.artifacts() == () and user.store.refs() == {}
    (rejected,) = user.store.rejections()
    left = set(user.store.objects.all()) - before
    texts = [bytes(user.store.objects.read(item, what="it")) for item in left]
    # two gates' evidence, the document that names both, the signed statement
    assert sum(b'"schema":"kvg.evidence/1"' in text for text in texts) == 2
    assert sum(b'"schema":"kvg.rejection/1"' in text for text in texts) == 1
    assert user.store.log.size == size + 1 and len(left) == 4
    shown = kvg("cat", error["hint"].split()[-1]).out
    assert json.loads(shown)["reason"].startswith("the checker passes anything")
    assert kvg("show", "a").code == 3 and kvg("ls").out == ""
    for verb in ("gc", "fsck", "verify", "stats", "audit", "reindex"):
        assert kvg(verb).code == 0, verb
    assert rejected in user.store.rejections() and left <= set(user.store.objects.all())
    assert kvg("deposit", "a", "--text", TEXT, "--gate", RIGHT).code == 0
    assert kvg("verify", "a", "--require", "test").code == 0


def test_what_cannot_be_checked_leaves_nothing(user: models.User, kvg: Kvg) -> None:
    before, size = set(user.store.objects.all()), user.store.log.size
    refused = kvg("deposit", "a", "--text", TEXT, "--gate", "consistency", "--json")
    assert refused.code == 8 and "asks nothing" in json.loads(refused.err)["message"]
    refused = kvg("deposit", "a", "--text", TEXT, "--gate", "python-assert:True", "--json")
    assert refused.code == 8 and "can't tell" in json.loads(refused.err)["message"]
    assert set(user.store.objects.all()) == before and user.store.log.size == size


def test_every_deposit_proves_itself(user: models.User, kvg: Kvg) -> None:
    done = kvg("deposit", "a", "--text", TEXT)
    assert done.code == 0
    assert "gates: none" in kvg("ls").out and "verified" not in kvg("show", "a").out
    shown = json.loads(kvg("show", "a", "--json").out)
    said = {
        item["detail"]["gate"]: item["detail"]["result"]
        for item in shown["attestations"]
        if item["kind"] == "test-result"
    }
    assert said == dict.fromkeys(("finite", "round-trip", "witness"), "PASSED")
    assert shown["gates"] == [] and shown["verification"]["executionSignature"]
    assert [shown["verification"][name] for name in ("formalProofChecked", "unitTestPass")] == [
        None,
        None,
    ]
    for gate in said:
        assert f"test-result {gate} PASSED signed by" in kvg("show", "a").out
    assert kvg("verify", "a", "--require", "witness").code == 0
    assert kvg("verify", "a", "--require", "test").code == 6


@pytest.mark.parametrize("broken", ["finite", "round-trip", "witness"])
def test_a_deposit_that_does_not_prove_itself(
    user: models.User, kvg: Kvg, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the check looks at is changed under it: each fails by its own name, nothing is named."""
    from kvg.model.placing import Placing
    from kvg.model.session import Session

    ends = {"finite": b"\x80\x7f", "round-trip": b"\x00\x01"}
    if broken in ends:
        put = Placing.put

        def changed(to: Placing, piece: memoryview) -> None:
            put(to, memoryview(bytes(piece[:-2]) + ends[broken][: piece.nbytes]))

        monkeypatch.setattr(Placing, "put", changed)
    else:
        resume = Session.resume
        monkeypatch.setattr(Session, "resume", lambda *a: tuple(found + 1 for found in resume(*a)))
    refused = kvg("deposit", "a", "--text", TEXT, "--json")
    assert refused.code == 8
    assert f"gate {broken}:" in json.loads(refused.err.splitlines()[-1])["message"]
    assert user.store.refs() == {} and user.store.artifacts() == ()


@pytest.mark.parametrize("reference", ["invariant", "scheduled"])
def test_seeds_of_a_model_that_do_not_agree(user: models.User, kvg: Kvg, reference: str) -> None:
    chat = [{"role": "user", "content": "What?"}, {"role": "assistant", "content": "That."}]
    (user.settings.cwd / "chat.json").write_text(json.dumps(chat))
    gate = ("--gate", "consistency:3", "--reference", reference)
    refused = kvg("deposit", "c", "--chat", "chat.json", *gate, "--json")
    error = json.loads(refused.err.splitlines()[-1])
    assert refused.code == 8 and "dissents" in error["message"]
    shown = json.loads(kvg("cat", error["hint"].split()[-1]).out)
    assert shown["record"]["seeds"] == 3 and shown["record"]["deposited"] == "That."


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
    whole = json.dumps({"messages": json.loads((user.folder / "chat.json").read_text())})
    (user.folder / "object.json").write_text(whole)
    assert kvg("deposit", "o", "--chat", "object.json", *gate).code == 0
    wrong = ("--gate", "python-assert:int(answer) == 41")
    assert kvg("deposit", "p", "--chat", "object.json", *wrong).code == 8
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


def test_a_gate_that_looked_at_another_problem_is_not_this_ones(
    user: models.User, kvg: Kvg
) -> None:
    """The same text as the answer to something else: it would have passed what it never met."""
    for name, problem in (
        ("times", "What is 6 times 7?"),
        ("more", "What is 14 times 3?"),
        ("plus", "What is 6 plus 7?"),
    ):
        (user.folder / f"{name}.txt").write_text(problem)
    (user.folder / "answer.txt").write_text("The answer is 42.")
    gate = ("--gate", "python-assert:'6 times 7' in text and '42' in answer")
    assert kvg("deposit", "a", "answer.txt", "--family", "times.txt", *gate).code == 0
    for name, why in (("plus", "of family"), ("more", "to another problem")):
        for dry in ((), ("--dry-run",)):
            told = kvg("deposit", name, "answer.txt", "--family", f"{name}.txt", *dry)
            assert told.code == 4 and why in told.err
        assert user.store.ref(name) is None
    assert kvg("deposit", "b", "answer.txt", "--family", "times.txt").code == 0
    assert kvg("deposit", "c", "answer.txt").code == 0


def test_a_text_that_answered_nothing_is_no_answer_later(user: models.User, kvg: Kvg) -> None:
    (user.folder / "problem.txt").write_text("Sum the integers from 3 to 9.")
    assert kvg("deposit", "a", "--text", TEXT).code == 0
    told = kvg("deposit", "b", "--text", TEXT, "--family", "problem.txt")
    assert told.code == 4 and "to no problem" in told.err


def test_a_gate_that_looked_at_another_reading_of_the_ids_is_not_this_ones(
    user: models.User, kvg: Kvg
) -> None:
    """What spells a chat's marks in its text has the token ids of another chat, or of a text."""
    turns = ["Which?", "#12345", "Which colour?", "blue"]
    whole = [
        {"role": role, "content": content}
        for role, content in zip(("user", "assistant") * 2, turns, strict=True)
    ]
    marks = "{}<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n{}"
    spelt = [whole[0], {"role": "assistant", "content": marks.format(*turns[1:])}]
    (user.folder / "whole.json").write_text(json.dumps(whole))
    (user.folder / "spelt.json").write_text(json.dumps(spelt))
    (user.folder / "text.txt").write_text(
        f"<|im_start|>user\n{turns[0]}<|im_end|>\n<|im_start|>assistant\n"
        f"{spelt[1]['content']}<|im_end|>\n"
    )
    gate = ("--gate", "python-assert:not any(c.isdigit() for c in answer)")
    assert kvg("deposit", "b", "--chat", "spelt.json", *gate).code == 8
    assert kvg("deposit", "a", "--chat", "whole.json", *gate).code == 0
    for given in (("--chat", "spelt.json"), ("text.txt",)):
        told = kvg("deposit", "b", *given)
        assert told.code == 4 and "another one, at which its gates looked" in told.err
    assert kvg("deposit", "again", "--chat", "whole.json").code == 0
