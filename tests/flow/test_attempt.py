"""A miss that the model tries: what passes is learned, what does not leaves only evidence."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kvg.flow.asking import Asked, answer_together, ask_messages
from kvg.flow.attempt import named_text, slot_names
from kvg.problem.family import parse_problem
from kvg.verify.traced import trace_ref
from tests import models
from tests.flow.conftest import Ran

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
Kvg = Callable[..., Ran]
TEXT = "Multiply 6 by 7."
CHECKER = "def check(answer, a, b): return answer == sum(b for _ in range(a))\n"
SAME = "import sys\nsys.exit(open('answer.txt').read() != {!r})\n"
TRY = ("--model", "tiny", "--max-tokens", "6", "--json")


def record(ran: Ran) -> dict[str, object]:
    assert ran.code == 0, ran.err
    found: dict[str, object] = json.loads(ran.out)
    return found


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """What the model is made to write, in its own tokens."""

    def force(text: str) -> None:
        def answer(asked: Asked, max_tokens: int, **_: object) -> tuple[str, tuple[int, ...]]:
            ids = tuple(asked.tokenizer.encode_more(text))
            asked.slot.truncate(len(asked.ids))
            for token in ids[:-1]:
                asked.session.run(asked.slot, [token], [0])
            return text, ids

        monkeypatch.setattr(Asked, "answer", answer)

    return force


def passing_gate(user: models.User, kvg: Kvg, *more: str) -> str:
    """A gate that only the model's own answer passes."""
    answer = record(kvg("solve", TEXT, *TRY, *more))["answer"]
    (user.folder / "same.py").write_text(SAME.format(answer))
    return "cmd:python3 same.py"


def test_an_answer_that_passed_is_given_again_at_no_token(user: models.User, kvg: Kvg) -> None:
    gate = passing_gate(user, kvg)
    assert user.store.refs() == {}
    first = record(kvg("solve", TEXT, *TRY, "--gate", gate, "--learn"))
    assert (first["status"], first["learned"], first["gates"]) == ("MISS", True, ["test:cmd"])
    assert first["tokens_generated"] == 6
    again = record(kvg("solve", TEXT, "--json"))
    assert (again["status"], again["tokens_generated"]) == ("HIT", 0)
    assert (again["answer"], again["artifact"]) == (first["answer"], first["artifact"])
    assert again["gates"] == ["test:cmd"] and again["method"] is None
    for near in ("Multiply 6 by 8.", "Multiply 6  by 7.", "multiply 6 by 7."):
        assert kvg("solve", near).code == 3
    family = parse_problem(TEXT).family.digest
    ref = trace_ref(family, TEXT)
    assert user.store.ref(ref) == first["artifact"]
    shown = json.loads(kvg("show", ref, "--json").out)
    assert shown["family"] == family and shown["verification"]["unitTestPass"] is True
    assert json.loads(kvg("replay", ref, "--samples", "2", "--json").out.splitlines()[-1]) == {
        **json.loads(kvg("replay", ref, "--samples", "2", "--json").out.splitlines()[-1]),
        "equal": 2,
        "pages_equal": len(shown["pages"]),
    }
    for verb in ("gc", "fsck", "reindex", "verify"):
        assert kvg(verb).code == 0, verb
    assert record(kvg("solve", TEXT, "--json"))["status"] == "HIT"


def test_who_asked_for_no_check_is_told_that_there_was_none(user: models.User, kvg: Kvg) -> None:
    unchecked = kvg("solve", TEXT, *TRY)
    assert unchecked.code == 0 and "nothing checked this answer" in unchecked.err
    checked = kvg("solve", TEXT, *TRY, "--gate", passing_gate(user, kvg))
    assert checked.code == 0 and "nothing checked" not in checked.err


def test_the_stored_tokens_are_an_exact_draft(
    user: models.User, kvg: Kvg, tiny: dict[str, Path]
) -> None:
    record(kvg("solve", TEXT, *TRY, "--gate", passing_gate(user, kvg), "--learn"))
    draft = record(kvg("solve", TEXT, "--draft", "--json"))["draft"]
    assert isinstance(draft, dict)
    assert (draft["tokens"], draft["confirmed"], draft["forward_passes"]) == (6, 6, 1)
    assert draft["first_difference"] is None and draft["witness_equal"] is True
    other = models.make_model(user.folder / "other", "llama", seed=7)
    user.add("other", other)
    ran = kvg("solve", TEXT, "--draft", "--model", "other", "--json")
    draft = json.loads(ran.out)["draft"]
    assert ran.code == 11 and draft["witness_equal"] is False
    wrong = draft["first_difference"]
    assert wrong["stored"] != wrong["computed"] and draft["confirmed"] < 6
    assert kvg("solve", "Multiply 6 by 9.", "--draft").code == 3


def test_what_is_said_of_a_drafted_answer_is_not_what_the_method_gave(
    user: models.User, kvg: Kvg
) -> None:
    learned = record(kvg("solve", TEXT, *TRY, "--gate", passing_gate(user, kvg), "--learn"))
    (user.folder / "p.py").write_text("def solve(a, b): return a * b\n")
    (user.folder / "c.py").write_text("def check(x, a, b): return x == sum(b for _ in range(a))\n")
    add = ("method", "add", "--text", TEXT, "--program", "p.py", "--checker", "c.py")
    assert kvg(*add).code == 0
    assert record(kvg("solve", TEXT, "--json"))["answer"] == "42"
    ran = kvg("solve", TEXT, "--draft", "--json")
    drafted = json.loads(ran.out)
    assert (drafted["answer"], drafted["artifact"]) == (learned["answer"], learned["artifact"])
    assert (drafted["method"], drafted["sandbox"], drafted["checked"]) == (None, None, False)
    assert "answers '42', and the trace does not" in ran.err


def test_an_answer_that_fails_leaves_only_evidence(user: models.User, kvg: Kvg) -> None:
    (user.folder / "same.py").write_text(SAME.format("42"))
    refused = kvg("solve", TEXT, *TRY, "--gate", "cmd:python3 same.py", "--learn")
    assert refused.code == 8
    assert user.store.artifacts() == () and user.store.refs() == {}
    assert len(user.store.rejections()) == 1
    assert kvg("solve", TEXT).code == 3


def test_a_program_that_passed_answers_the_next_instance(
    user: models.User, kvg: Kvg, writes: Callable[[str], None]
) -> None:
    (user.folder / "c.py").write_text(CHECKER)
    learn = (*TRY, "--checker", "c.py", "--learn")
    writes(" 42")
    refused = kvg("solve", TEXT, *learn)
    assert (
        refused.code == 8
        and "the checker refuses 42" in json.loads(refused.err.splitlines()[-1])["message"]
    )
    assert kvg("solve", TEXT).code == 3
    writes(" s0 * s1")
    done = record(kvg("solve", TEXT, *learn))
    assert done["answer"] == "42" and done["learned"] and done["gates"] == ["test:method"]
    fresh = record(kvg("solve", "Multiply 12 by 31.", "--json"))
    assert (fresh["status"], fresh["answer"], fresh["tokens_generated"]) == ("HIT", "372", 0)
    assert fresh["method"] == done["method"]
    refused = kvg("solve", "Multiply 12 by 31.", "--require", "test:cmd")
    assert refused.code == 6 and "not met: test:cmd" in refused.err
    kvg("config", "set", "deposit.require", '["test:cmd", "test:method"]')
    assert kvg("solve", "Times 6 by 7.", *learn).code == 8
    (user.folder / "same.py").write_text(SAME.format("42"))
    gated = record(kvg("solve", "Times 6 by 7.", *learn, "--gate", "cmd:python3 same.py"))
    assert record(kvg("solve", "Times 2 by 9.", "--json"))["method"] == gated["method"]
    kvg("config", "unset", "deposit.require")
    shown = json.loads(kvg("show", str(done["artifact"]), "--json").out)
    assert shown["attestations"][0]["detail"]["method"] == done["method"]
    ran = kvg("solve", TEXT, "--draft", "--json")  # the random model would not have written that
    wrong = json.loads(ran.out)["draft"]["first_difference"]
    assert ran.code == 11 and wrong["stored"] != wrong["computed"]


def test_one_block_of_the_declared_parent_is_grafted(user: models.User, kvg: Kvg) -> None:
    chat = [{"role": "user", "content": "Add 3 and 4."}, {"role": "assistant", "content": "7"}]
    (user.folder / "ex.json").write_text(json.dumps(chat))
    (user.folder / "add.txt").write_text("Add 3 and 4.")
    block = json.loads(
        kvg("deposit", "ex", "--chat", "ex.json", "--family", "add.txt", "--json").out
    )["digest"]
    family = parse_problem("Add 3 and 4.").family.digest
    alone = record(kvg("solve", TEXT, *TRY))
    assert alone["exemplar"] is None
    for parent in ("ex", family, block):
        assert record(kvg("solve", TEXT, *TRY, "--parent", parent))["exemplar"] == block
    gate = passing_gate(user, kvg, "--parent", "ex")
    learned = record(kvg("solve", TEXT, *TRY, "--parent", "ex", "--gate", gate, "--learn"))
    shown = json.loads(kvg("show", str(learned["artifact"]), "--json").out)
    assert shown["attestations"][0]["detail"]["parent"] == block
    draft = record(kvg("solve", TEXT, "--draft", "--json"))["draft"]
    assert isinstance(draft, dict) and draft["witness_equal"] and draft["confirmed"] == 6
    missed = kvg("solve", TEXT.replace(" ", "  "), "--json")
    assert missed.code == 3 and "no trace of just this text" in json.loads(missed.out)["reason"]
    # the family has declared its parent: another instance gets the same block, unasked
    assert record(kvg("solve", "Multiply 2 by 9.", *TRY))["exemplar"] == block
    assert kvg("solve", "Multiply 2 by 9.", *TRY, "--parent", "absent").code == 3


def test_a_stale_trace_or_method_is_a_miss(
    user: models.User, kvg: Kvg, writes: Callable[[str], None]
) -> None:
    (user.folder / "c.py").write_text(CHECKER)
    (user.folder / "prices.csv").write_text("1")
    writes(" s0 * s1")
    learn = (*TRY, "--checker", "c.py", "--learn", "--depends", "prices.csv")
    record(kvg("solve", TEXT, *learn))
    assert record(kvg("solve", TEXT, "--json"))["status"] == "HIT"
    (user.folder / "prices.csv").write_text("2")
    missed = kvg("solve", TEXT, "--json")
    assert missed.code == 3
    reason = json.loads(missed.out)["reason"]
    assert re.fullmatch(
        r"method sha256:\w+: (stale: prices.csv has changed); trace sha256:\w+: \1",
        reason,
    )
    listed = [json.loads(line) for line in kvg("ls", "--stale", "--json").out.splitlines()]
    assert [item["type"] for item in listed] == ["ref", "stale-method"]
    assert kvg("ls", "--stale").out.count("stale: prices.csv has changed\n") == 2
    assert len(kvg("ls", "--stale", "-0").out.split("\0")) == 2  # a method has no ref


def test_an_older_trace_that_is_fresh_answers(
    user: models.User, kvg: Kvg, writes: Callable[[str], None]
) -> None:
    (user.folder / "any.py").write_text(
        "import sys\nsys.exit(open('answer.txt').read() not in ('old', 'new'))\n"
    )
    learn = (*TRY, "--gate", "cmd:python3 any.py", "--learn", "--depends")
    files = {name: user.folder / name for name in ("a.csv", "b.csv")}
    for name, answer in (("a.csv", "old"), ("b.csv", "new")):
        files[name].write_text("1")
        writes(answer)
        assert record(kvg("solve", TEXT, *learn, name))["learned"]
        assert record(kvg("solve", TEXT, "--json"))["answer"] == answer
        files[name].unlink()
    missed = kvg("solve", TEXT, "--json")
    reason = json.loads(missed.out)["reason"]
    assert missed.code == 3 and reason.index("b.csv") < reason.index("a.csv")
    files["a.csv"].write_text("1")
    assert record(kvg("solve", TEXT, "--json"))["answer"] == "old"
    files["b.csv"].write_text("1")
    assert record(kvg("solve", TEXT, "--json"))["answer"] == "new"
    kvg("rm", trace_ref(parse_problem(TEXT).family.digest, TEXT))
    assert kvg("solve", TEXT).code == 3


def test_usage(user: models.User, kvg: Kvg) -> None:
    assert kvg("solve", TEXT, "--learn").code == 2
    assert kvg("solve", TEXT, "--model", "absent").code == 3
    (user.folder / "c.py").write_text(CHECKER)
    unfit = kvg("solve", "Say yes.", *TRY, "--checker", "c.py")  # and no model is asked
    assert unfit.code == 2 and "no slot" in unfit.err and "wrote" not in unfit.err
    kvg("config", "set", "deposit.require", "seeds")
    (user.folder / "same.py").write_text(SAME.format("42"))
    refused = kvg("solve", TEXT, *TRY, "--gate", "cmd:python3 same.py", "--learn")
    assert refused.code == 8 and "requires gates" in json.loads(refused.err)["message"]


def test_how_a_family_is_put_to_a_model() -> None:
    problem = parse_problem('Give {both} of [1, 2] and "x" after 2026-01-31 only.')
    assert slot_names(problem, ("items",)) == ("items", "s1", "s2")
    assert named_text(problem, ("items",)) == "Give {both} of items and s1 after s2 only."


def test_seeds_side_by_side_are_those_one_by_one(tiny: dict[str, Path]) -> None:
    session, tokenizer = models.session(tiny["llama"]), models.tokenizer(tiny["llama"])
    asked = ask_messages(session, tokenizer, ({"role": "user", "content": TEXT},))
    together = asked.samples(range(6), 7, 0.7)
    assert together == [asked.samples(range(n, n + 1), 7, 0.7)[0] for n in range(6)]
    assert len({ids for _, ids in together}) > 1
    ask = asked.seeds(7, 0.7)
    assert [ask(seed) for seed in (5, 0)] == [together[5][0], together[0][0]]
    assert asked.answer(7) == asked.answer(7)


def test_questions_side_by_side_are_answered_as_alone(tiny: dict[str, Path]) -> None:
    session, tokenizer = models.session(tiny["llama"]), models.tokenizer(tiny["llama"])
    texts = (TEXT, "Another.", "One more, and a longer one.")

    def asked() -> list[Asked]:
        return [
            ask_messages(session, tokenizer, ({"role": "user", "content": text},)) for text in texts
        ]

    for most in (1, 9):
        assert answer_together(asked(), most) == [item.answer(most) for item in asked()]


RANGES = '[{{"least": {0}, "most": {1}}}, {{"least": {0}, "most": {1}}}]'


def learned_twice(user: models.User, kvg: Kvg, *first: str) -> None:
    """Two instances of one family, of which one trace comes out: the second in other ranges, by a
    gate that looked at its answer. ``first`` are arguments for the first one."""
    (user.folder / "c.py").write_text(CHECKER)
    for text, low, high, more in (
        (TEXT, 1, 60, first),
        ("Multiply 101 by 107.", 100, 160, ("--gate", "python-assert:answer == '10807'")),
    ):
        (user.folder / "r.json").write_text(RANGES.format(low, high))
        done = record(
            kvg("solve", text, *TRY, "--checker", "c.py", "--slots", "r.json", "--learn", *more)
        )
        assert done["learned"] is True
    assert len(set(user.store.refs().values())) == 1


def test_what_is_fresh_of_one_text_is_not_so_of_another(
    user: models.User, kvg: Kvg, writes: Callable[[str], None]
) -> None:
    (user.folder / "rates.txt").write_text("one")
    writes(" s0 * s1")
    learned_twice(user, kvg, "--depends", "rates.txt")
    (user.folder / "rates.txt").write_text("two")
    stale = kvg("solve", TEXT)
    assert stale.code == 3 and "rates.txt" in stale.out + stale.err
    assert record(kvg("solve", "Multiply 101 by 107.", "--json"))["answer"] == "10807"
    refs = [json.loads(line).get("ref") for line in kvg("ls", "--stale", "--json").out.splitlines()]
    family = parse_problem(TEXT).family.digest
    assert trace_ref(family, TEXT) in refs
    fresh = trace_ref(family, "Multiply 101 by 107.")
    assert fresh not in refs
    for ref, code in ((trace_ref(family, TEXT), 3), (fresh, 0)):
        assert kvg("graft", ref, "--prompt", "x", "--max-tokens", "1").code == code
        assert kvg("logits", ref).code == code


def test_a_gate_counts_for_the_answer_that_it_looked_at(
    user: models.User, kvg: Kvg, writes: Callable[[str], None]
) -> None:
    writes(" s0 * s1")
    learned_twice(user, kvg)
    for method in user.store.methods():
        assert kvg("forget", method, "--yes").code == 0
    for text, answer, code in ((TEXT, "42", 6), ("Multiply 101 by 107.", "10807", 0)):
        assert record(kvg("solve", text, "--json"))["answer"] == answer
        assert kvg("solve", text, "--require", "test:python-assert").code == code
        drafted = json.loads(kvg("solve", text, "--draft", "--json").out)
        assert drafted["answer"] == answer and drafted["draft"]["witness_equal"] is True
    gates = {
        entry["ref"]: entry["gates"]
        for entry in map(json.loads, kvg("ls", "--json").out.splitlines())
    }
    family = parse_problem(TEXT).family.digest
    assert gates[trace_ref(family, TEXT)] == ["test:method"]
    for ref, code in ((trace_ref(family, TEXT), 6), (trace_ref(family, text), 0)):
        assert kvg("verify", ref, "--require", "test:python-assert").code == code
        asked = ("graft", ref, "--prompt", "x", "--max-tokens", "1")
        assert kvg(*asked, "--require", "test:python-assert").code == code
