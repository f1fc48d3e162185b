"""Methods: what is proved and stored, what is rejected by name, and what answers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kvg.digest import Digest, parse_digest, sha256
from kvg.errors import GateFailed
from kvg.flow.proving import prove
from kvg.gates.calls import Caller
from kvg.objects.statement import (
    PASSED,
    Resource,
    TestResult,
    encode_test_result,
    parse_statement,
)
from kvg.problem.family import parse_problem
from kvg.problem.method import METHOD_GATE, Method
from kvg.problem.ranges import SlotRange
from kvg.sandbox import find_enclosure
from kvg.signing.dsse import parse_envelope, sign_envelope
from kvg.signing.keys import PrivateKey
from kvg.store import Store
from kvg.trust import Keyring
from kvg.verify.method import Verdicts
from tests.artifacts import key_of
from tests.cli.conftest import Run

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")

TEXT = "Sum the integers from 3 to 9."
PROGRAM = "def solve(a, b): return (a + b) * (b - a + 1) // 2 if b >= a else 0\n"
CHECKER = "def check(answer, a, b): return answer == sum(range(a, b + 1))\n"
ADD = ("method", "add", "--text", TEXT, "--program", "p.py", "--checker", "c.py")


@pytest.fixture
def store(kvg: Run, home: Path) -> Store:
    kvg("init")
    kvg("key", "new", "first")
    Path("p.py").write_text(PROGRAM)
    Path("c.py").write_text(CHECKER)
    return Store.open(Path(".kvg").absolute(), keyring=Keyring(home / ".local/share/kvg/keys"))


def test_a_method_answers_its_family(kvg: Run, store: Store) -> None:
    Path("r.json").write_text('[{"least": 1, "most": 3000}, {"least": 1, "most": 3000}]')
    done = kvg(*ADD, "--slots", "r.json", "--json")
    added = done.record
    assert "give --slots" not in done.err
    assert added["new"] and added["instances"] == 48 and added["log_index"] is not None
    done = kvg("solve", "Sum the integers from 100 to 2000.", "--json")
    assert done.code == 0
    record = done.record
    assert (record["status"], record["answer"], record["tokens_generated"]) == ("HIT", "1996050", 0)
    assert record["method"] == added["method"] and record["attestation"] == added["attestation"]
    assert record["checked"]
    assert kvg("solve", TEXT).out == "42\n"
    assert kvg("solve", "-", stdin=TEXT.encode()).out == "42\n"
    assert kvg("method", "run", added["method"], "3", "9").out == "42\n"
    assert kvg("method", "run", added["family"][:14], "3").code == 2
    shown = kvg("method", "show", added["family"], "--json").record
    assert shown["method"] == added["method"] and len(shown["signers"]) == 1
    (listed,) = kvg("family", "list", "--json").records
    assert listed["methods"] == [added["method"]] and listed["artifacts"] == []


def test_forgetting_one_ends_beside_a_rejection_that_knows_of_it(kvg: Run, store: Store) -> None:
    Path("wrong.py").write_text("def solve(a, b): return 42\n")
    assert kvg(*ADD[:-3], "wrong.py", *ADD[-2:]).code == 8
    first = kvg(*ADD, "--json").record["method"]
    again = ("method", "add", "--text", "Race the integers from 3 to 9.", *ADD[4:])
    assert kvg(*again).code == 0
    done = kvg("--yes", "forget", first, "--json")
    assert done.code == 0, done
    assert kvg("fsck").code == 0 and "begun" not in kvg("gc").err


def test_values_that_would_take_for_ever_to_draw_are_refused(kvg: Run, store: Store) -> None:
    inner = '{"least": 1, "most": 10000}'
    Path("r.json").write_text(f'[{{"least": 1, "most": 10000, "items": {inner}}}]')
    text = "How many numbers are in [[1, 2], [3]]?"
    done = kvg(*ADD[:3], text, *ADD[4:], "--slots", "r.json")
    assert done.code == 2 and "at most 100,000 can be proved" in done.err


def test_audit_says_who_proved_it(kvg: Run, store: Store) -> None:
    method = kvg(*ADD, "--json").record["method"]
    signers = kvg("method", "show", method, "--json").record["signers"]
    (item,) = kvg("audit", "--json").record["artifacts"]
    assert item["is_method"] and item["depositors"] == signers and signers
    assert f"signed by {signers[0][:6]}" in kvg("audit").out


def test_the_key_is_looked_at_before_the_proof(
    kvg: Run, store: Store, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prove(*_: object) -> None:
        raise AssertionError("proved")

    monkeypatch.setattr("kvg.flow.rejected.prove_or_reject", prove)
    (key,) = (home / ".local/share/kvg/keys").glob("*.pem")
    key.chmod(0o644)
    done = kvg(*ADD)
    assert done.code == 6 and "others can read" in done.err


def test_a_revoked_key_proves_nothing(kvg: Run, store: Store) -> None:
    ids = [kvg("key", "new", name, "--json").record["keyid"] for name in ("gone", "second")]
    kvg("trust", "add", ids[0], "--role", "depositor")
    assert kvg("trust", "revoke", ids[0]).code == 0
    done = kvg(*ADD, "--key", "gone")
    assert done.code == 6 and "is revoked in this store" in done.err and "--key NAME" in done.err


def test_a_near_miss_is_a_miss(kvg: Run, store: Store) -> None:
    kvg(*ADD)
    for text in ("Sum the even integers from 3 to 9.", "sum the integers from 3 to 9.", TEXT[:-1]):
        missed = kvg("solve", text, "--json")
        assert missed.code == 3
        assert missed.record["status"] == "MISS" and missed.record["answer"] is None
    missed = kvg("solve", "Sum the integers from 3 to 9.5.")
    assert missed.code == 3 and missed.out == "" and "no method" in missed.err
    near = kvg("family", "hash", "--text", "Sum the even integers from 3 to 9.", "--explain")
    assert "even" in near.out and "differs" in near.out


def test_it_survives_reindex_gc_and_fsck(kvg: Run, store: Store) -> None:
    kvg(*ADD)
    for verb in ("reindex", "gc", "fsck"):
        assert kvg(verb).code == 0
        assert kvg("solve", TEXT).out == "42\n"


def test_ranges_hold(kvg: Run, store: Store) -> None:
    Path("r.json").write_text('[{"name": "low", "least": 4, "most": 50}, {"least": 1}]')
    added = kvg(*ADD, "--slots", "r.json")
    assert added.code == 0
    assert "the text itself is none that it will answer: slot low: 3 is not within" in added.err
    assert kvg("solve", "Sum the integers from 50 to 51.").out == "101\n"
    outside = kvg("solve", "Sum the integers from 51 to 52.")
    assert outside.code == 3 and "slot low: 51" in outside.err
    for wrong in ("{}", "[]", '[{"least": 9, "most": 1}, {}]', '[{"x": 1}, {}]', "[1, 2]"):
        Path("r.json").write_text(wrong)
        assert kvg(*ADD, "--slots", "r.json").code == 2


GCD = "Give the greatest common divisor of 12 and 18."
GCD_PROGRAM = "import math\ndef solve(a, b): return math.gcd(a, b)\n"
GCD_CHECKER = """def check(answer, a, b):
    return answer == max(n for n in range(1, min(a, b) + 1) if a % n == b % n == 0)
"""


def test_a_method_answers_only_where_it_was_proved(kvg: Run, store: Store) -> None:
    """Without --slots the range is closed where the proof drew its values, both ends of it."""
    Path("p.py").write_text(GCD_PROGRAM)
    Path("c.py").write_text(GCD_CHECKER)
    added = kvg("method", "add", "--text", GCD, *ADD[4:], "--json")
    for name in ("s0", "s1"):
        assert f"slot {name} (int): proved and answered for 1 to 60; give --slots" in added.err
    slots = added.record["slots"]
    assert [(slot["least"], slot["most"]) for slot in slots] == [("1", "60")] * 2
    said = store.objects.read(digest_of(added.record["attestation"]), what="x", limit=1 << 20)
    proof = next(r for r in proof_of(bytes(said)).evidence if r.name == "proof").digest
    assert proof is not None
    document = json.loads(bytes(store.objects.read(proof, what="proof", limit=1 << 20)))
    for at in (0, 1):
        drawn = {int(item["slots"][at]) for item in document["instances"]}
        assert (min(drawn), max(drawn)) == (1, 60)
    ask = GCD.replace("12", "{}").replace("18", "{}").format
    assert kvg("solve", ask(60, 1)).out == "1\n"
    for a, b, slot in ((61, 7, "s0: 61"), (60, 10**9, "s1: 1000000000"), (0, 5, "s0: 0")):
        missed = kvg("solve", ask(a, b), "--json")
        assert missed.code == 3 and missed.record["answer"] is None
        reason = missed.record["reason"]
        assert f"slot {slot} is not within 1 to 60" in reason and "method add --slots" in reason
    shown = kvg("method", "show", added.record["family"])
    assert shown.out.count("int  1 to 60\n") == 2
    assert kvg("method", "run", added.record["method"], "61", "7").code == 2


def test_a_side_that_is_left_open_is_closed(kvg: Run, store: Store) -> None:
    """At the usual limit, or at the value of the text that is given."""
    Path("r.json").write_text('[{"name": "low", "least": -40}, {"most": 500}]')
    added = kvg("method", "add", "--text", TEXT.replace("3", "75"), *ADD[4:], "--slots", "r.json")
    assert added.code == 0
    assert "slot low (int): proved and answered for -40 to 75;" in added.err
    assert "slot s1 (int): proved and answered for 1 to 500;" in added.err
    ask = TEXT.replace("3", "{}").replace("9", "{}").format
    assert kvg("solve", ask(75, 500)).code == 0
    for values in ((76, 500), (-41, 2), (2, 501), (2, 0)):
        assert kvg("solve", ask(*values)).code == 3
    Path("r.json").write_text('[{"least": 1000}, {}]')
    refused = kvg(*ADD, "--slots", "r.json")
    assert refused.code == 2 and "slot 0: " in refused.err and "give both" in refused.err


def test_a_method_that_was_stored_open_answers_what_its_proof_drew(
    kvg: Run, store: Store, home: Path
) -> None:
    """As methods were stored before: no side closed, so at the limits that were usual."""
    key = Keyring(home / ".local/share/kvg/keys").load("first", None)
    put_method(store, key)
    assert kvg("solve", "Sum the integers from 60 to 1.").out == "13\n"
    missed = kvg("solve", "Sum the integers from 61 to 1.", "--json")
    assert missed.code == 3 and "s0: 61 is not within 1 to 60" in missed.record["reason"]
    (slot, _) = kvg("method", "show", missed.record["family"], "--json").record["slots"]
    assert (slot["least"], slot["most"], slot["range"]) == ("1", "60", "1 to 60")


def test_a_constraint_does_not_keep_the_ends_from_being_tried(caller: Caller) -> None:
    """However many other instances meet it."""
    problem = parse_problem(TEXT)
    holds = b"def holds(a, b): return a <= 2 * b"
    slot = SlotRange("int", None, "1", "5000")
    proof = prove(caller, problem, [slot] * 2, PROGRAM.encode(), CHECKER.encode(), condition=holds)
    asked = [item["slots"] for item in json.loads(proof.evidence)["instances"]]
    assert {"1", "5000"} <= {slots[0] for slots in asked}
    assert any(slots[1] == "5000" and slots[0] != "5000" for slots in asked)


def test_a_constraint_is_part_of_the_family_and_of_the_proof(kvg: Run, store: Store) -> None:
    Path("p.py").write_text("def solve(a, b):\n    assert a <= b\n    return b - a\n")
    Path("c.py").write_text("def check(answer, a, b): return a + answer == b\n")
    assert kvg(*ADD).code == 8
    named = ("--constraint", "low <= high", "--name", "low", "--name", "high")
    assert kvg(*ADD, *named).code == 0
    assert kvg("solve", TEXT).code == 3
    for same in ("s1 >= s0", "\u3000s0 <= s1 ", "not not s0 <= s1"):
        assert kvg("solve", TEXT, "--constraint", same).out == "6\n"
    for names in (("a", "a"), ("a b",), ("a", "b", "c")):
        given = [word for name in names for word in ("--name", name)]
        assert kvg("solve", TEXT, *given).code == 2
    assert kvg("solve", "--file", ".").code == 2


@pytest.mark.parametrize(
    ("constraint", "why"),
    [
        ("n7 > 3", "NameError: name 'n7' is not defined"),
        ("s0 / (s1 - s1) > 1", "ZeroDivisionError"),
    ],
)
def test_a_constraint_that_cannot_be_computed_is_named(
    kvg: Run, store: Store, constraint: str, why: str
) -> None:
    refused = kvg(*ADD, "--constraint", constraint)
    assert refused.code == 8 and "only 0 instances" in refused.err and why in refused.err


def test_values_that_break_the_constraint_are_no_instance(kvg: Run, store: Store) -> None:
    """The method was proved of none of them: it gives what is wrong, or never ends."""
    Path("p.py").write_text("def solve(a, b):\n    while a > b: pass\n    return b - a\n")
    Path("c.py").write_text("def check(answer, a, b): return a + answer == b\n")
    named = ("--constraint", "low <= high", "--name", "low", "--name", "high")
    assert kvg(*ADD, *named).code == 0
    for constraint in (named, ("--constraint", "s1 >= s0"), ("--constraint", "not not s0 <= s1")):
        assert kvg("solve", TEXT, *constraint).out == "6\n"
        missed = kvg("solve", "Sum the integers from 9 to 3.", *constraint, "--json")
        assert missed.code == 3 and missed.record["answer"] is None
        assert not missed.record["checked"]
        assert missed.record["reason"] == "the values do not meet the constraint"
    tried = kvg("solve", "Sum the integers from 9 to 3.", *named, "--model", "none", "--json")
    assert tried.code == 3 and tried.record["reason"] == "the values do not meet the constraint"
    other = ("Add up the integers from 9 to 3.", *named, "--model", "none", "--checker", "c.py")
    tried = kvg("solve", *other, "--json")  # no method of that family, and no model is asked
    assert tried.code == 3 and tried.record["reason"] == "the values do not meet the constraint"
    run = kvg("method", "run", kvg("family", "list", "--json").records[0]["methods"][0], "3", "9")
    assert run.out == "6\n" and "constraint is not looked at" in run.err


def test_a_stale_method_is_listed(kvg: Run, store: Store) -> None:
    """By ls --stale alone; a form of refs has no place for it."""
    Path("rates.csv").write_text("3")
    added = kvg(*ADD, "--depends", "rates.csv", "--json").record
    assert kvg("ls", "--stale").out == "" and kvg("solve", TEXT).out == "42\n"
    Path("rates.csv").write_text("4")
    assert kvg("solve", TEXT).code == kvg("method", "run", added["method"], "3", "9").code == 3
    (listed,) = kvg("ls", "--stale", "--json").records
    assert listed["type"] == "stale-method" and listed["stale"] == "stale: rates.csv has changed"
    assert [listed[key] for key in ("method", "family", "attestation", "log_index")] == [
        added[key] for key in ("method", "family", "attestation", "log_index")
    ]
    shown = kvg("ls", "--stale").out
    assert shown.startswith("method ") and shown.count("\n") == 1 and "has changed" in shown
    assert kvg("ls").out == kvg("ls", "--stale", "-0").out == ""
    assert "stale: rates.csv has changed" in kvg("method", "show", added["method"]).out
    audited = kvg("audit", "--json").record["artifacts"]
    assert [item["stale"] for item in audited] == ["stale: rates.csv has changed"]
    assert kvg(*ADD, "--depends", "rates.csv").code == 0  # proved again, on what it is now
    assert kvg("ls", "--stale").out == "" and kvg("solve", TEXT).out == "42\n"


def test_a_dry_run_proves_and_stores_nothing(kvg: Run, store: Store) -> None:
    before = sum(1 for _ in store.objects.all())
    shown = kvg(*ADD, "--dry-run", "--json").record
    assert shown["instances"] == 48 and not shown["new"] and shown["attestation"] is None
    assert sum(1 for _ in store.objects.all()) == before
    assert kvg("solve", TEXT).code == 3


BAD_PROGRAMS = {
    "a constant answer": ("def solve(a, b): return 42", "checker refuses"),
    "a constant in the place of a slot": (
        "def solve(a, b): return sum(range(3, b + 1))",
        "refuses",
    ),
    "no function": ("x = 1", "defines no solve"),
    "an error": ("def solve(a, b): return a // 0", "ZeroDivisionError"),
    "chance": (
        "import os\ndef solve(a, b): return sum(range(a, b + 1)) + (os.urandom(1)[0] > 99)",
        "another answer",
    ),
    "what is equal and printed otherwise": (
        "import os\ndef solve(a, b):\n"
        "    n = sum(range(a, b + 1))\n    return [n, float(n)][os.urandom(1)[0] % 2]",
        "another answer",
    ),
    "what no comparison takes": (
        "from decimal import Decimal\ndef solve(a, b): return Decimal('sNaN1')",
        "signalling NaN",
    ),
    "one that knows the first call": (
        "import os\ndef solve(a, b):\n"
        "    return sum(range(a, b + 1)) if os.getpid() > 3 or (a, b) == (3, 9) else a",
        "when it is used",
    ),
    "a fork bomb": (
        "import os\ndef solve(a, b):\n    while True:\n        try: os.fork()\n"
        "        except OSError: pass",
        "limit on",
    ),
    "a memory hog": ("def solve(a, b): return bytearray(1 << 42)", "limit on memory"),
    "a network call": (
        "import socket\ndef solve(a, b): socket.create_connection(('1.1.1.1', 80), 2)",
        "unreachable",
    ),
    "a write outside": ("def solve(a, b): open('/usr/x', 'w')", "Read-only"),
    "an endless printer": ("def solve(a, b):\n    while True: print('x' * 9999)", "on output"),
    "a read of the keys": ("def solve(a, b): return open('KEY').read()", "No such file"),
    "half a character": ("def solve(a, b): return '\\ud800' * (b - a)", "not Unicode"),
    "half a character in a list": ("def solve(a, b): return [['\\udfff']]", "not Unicode"),
}


def test_a_proof_that_takes_too_long_is_rejected(
    kvg: Run, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name, with its evidence, and with what was slow."""
    from kvg.flow import proving

    monkeypatch.setattr(proving, "MAX_PROOF_S", 0.001)
    before, size = set(store.objects.all()), store.log.size
    refused = kvg(*ADD, "--constraint", "s0 <= s1", "--json")
    assert refused.code == 8
    assert "not proved within" in refused.error["message"]
    assert "calls of the constraint" in refused.error["message"]
    check_only_evidence(kvg, store, before, size, refused.error)


@pytest.mark.parametrize("name", BAD_PROGRAMS)
def test_a_program_is_rejected_by_name_and_leaves_nothing_but_evidence(
    kvg: Run, store: Store, home: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvg.gates import calls
    from kvg.sandbox import Limits

    limits = Limits(wall_s=6, cpu_s=3, processes=24, output_bytes=1 << 20)
    monkeypatch.setattr(calls, "CALL_LIMITS", limits)
    code, named = BAD_PROGRAMS[name]
    key = str(home / ".local/share/kvg/keys/first.pem")
    Path("p.py").write_text(code.replace("KEY", key))
    before, size = set(store.objects.all()), store.log.size
    refused = kvg(*ADD, "--json")
    assert refused.code == 8 and named in refused.error["message"]
    check_only_evidence(kvg, store, before, size, refused.error)
    assert kvg("solve", TEXT).code == 3


def check_only_evidence(
    kvg: Run, store: Store, before: set[Digest], size: int, error: dict[str, str]
) -> None:
    """What is new is the evidence, what was judged by it, and the statement about that."""
    new = set(store.objects.all()) - before
    evidence = error["hint"].rpartition(" ")[2]
    assert len(new) == 3 and evidence in new
    assert store.log.size == size + 1
    seen = json.loads(kvg("cat", evidence).out)
    program, checker = (sha256(Path(name).read_bytes()) for name in ("p.py", "c.py"))
    assert (seen["program"], seen["checker"]) == (program, checker)
    assert seen["broken"] in error["message"]
    assert program not in new and list(store.methods()) == []
    assert kvg("log").out.splitlines()[0].split()[3] == "rejected"
    assert kvg("log").out.splitlines()[0].endswith("  by method")
    newest = kvg("log", "--json").records[0]
    assert (newest["entry"], newest["rejected"]) == ("attestation", ["method"])
    assert kvg("gc").code == 0 and evidence in set(store.objects.all())
    assert kvg("fsck").code == 0 and kvg("reindex").code == 0


def test_answers_that_were_learnt_by_heart(kvg: Run, store: Store) -> None:
    """A program that knows the instances of an earlier proof does not know those of the next."""
    added = kvg(*ADD, "--json").record
    said = store.objects.read(digest_of(added["attestation"]), what="said", limit=1 << 20)
    proof = next(r for r in proof_of(bytes(said)).evidence if r.name == "proof").digest
    assert proof is not None
    document = json.loads(bytes(store.objects.read(proof, what="proof", limit=1 << 20)))
    known = {tuple(map(int, item["slots"])): item["answer"] for item in document["instances"]}
    assert (1, 1) in known and (60, 60) in known and len(document["seed"]) == 32
    Path("p.py").write_text(f"KNOWN = {known}\ndef solve(a, b): return int(KNOWN.get((a, b), b))\n")
    refused = kvg(*ADD, "--json")
    assert refused.code == 8 and "the checker refuses" in refused.error["message"]


def test_a_proof_can_be_run_again(kvg: Run, store: Store, caller: Caller) -> None:
    problem = parse_problem(TEXT)
    ranges = [SlotRange("int")] * 2
    sources = PROGRAM.encode(), CHECKER.encode()
    first = prove(caller, problem, ranges, *sources)
    seed = json.loads(first.evidence)["seed"]
    assert prove(caller, problem, ranges, *sources, seed=seed) == first
    assert prove(caller, problem, ranges, *sources).evidence != first.evidence


def test_what_is_right_at_the_first_instances_alone(caller: Caller) -> None:
    """Where one slot alone is varied the answers are checked as well."""
    problem = parse_problem("Sum 3 and 4.")
    ranges = [SlotRange("int", None, "1", "2"), SlotRange("int", None, "1", "99999999")]
    program = b"def solve(a, b): return a + b if b in (1, 99999999) or b % 97 else b\n"
    checker = b"def check(answer, a, b): return answer - b == a\n"
    for seed in "0123":  # one in 140 of the proofs misses every multiple of 97
        with pytest.raises(GateFailed, match="the checker refuses"):
            prove(caller, problem, ranges, program, checker, n_instances=160, seed=seed)


@pytest.mark.parametrize("kind", ["int", "decimal", "date", "str", "list[int]"])
def test_both_ends_of_every_range_are_instances(caller: Caller, kind: str) -> None:
    bounds = {
        "int": ("-7", "9"),
        "decimal": ("-1.5", "2.5"),
        "date": ("2024-02-28", "2025-03-01"),
        "str": ("0", "5"),
        "list[int]": ("1", "4"),
    }
    given = {"int": "1", "decimal": "1.0", "date": "2024-12-01", "str": '"ab"', "list[int]": "[1]"}
    problem = parse_problem(f"Tell {given[kind]}, 5 and {given[kind]}.")
    slot = SlotRange(kind, None, *bounds[kind])
    program = b"def solve(a, n, b): return [repr(a), n, repr(b)]\n"
    checker = b"def check(answer, a, n, b): return [repr(a), n, repr(b)] == list(answer)\n"
    proof = prove(caller, problem, [slot, SlotRange("int"), slot], program, checker)
    for at in (0, 2):
        seen = [item["slots"][at] for item in json.loads(proof.evidence)["instances"]]
        sizes = [len(raw) - 2 if kind == "str" else raw.count(",") + 1 for raw in seen]
        values = set(map(str, sizes)) if kind in ("str", "list[int]") else set(seen)
        assert set(bounds[kind]) <= values


def proof_of(envelope: bytes) -> TestResult:
    said = parse_statement(parse_envelope(envelope, what="x").payload, what="x").predicate
    assert isinstance(said, TestResult)
    return said


def digest_of(text: str) -> Digest:
    return parse_digest(text, what="digest")


@pytest.fixture
def caller() -> Caller:
    return Caller(find_enclosure())


BAD_CHECKERS = {
    "accepts anything": ("def check(answer, *slots): return True", "does not look"),
    "accepts what is a number": ("def check(answer, *s): return type(answer) is int", "not look"),
    "is the program": (PROGRAM, "the checker is the program"),
    "is the program under other names": (
        f"# mine\n{PROGRAM.replace('solve', 'sum_of')}"
        "def check(answer, a, b):\n    return answer == sum_of(a, b)\n",
        "the checker has the program's solve in it, as sum_of",
    ),
    "runs the program's text": (
        f"exec({PROGRAM!r})\ndef check(answer, a, b): return answer == solve(a, b)\n",
        "the checker has the program's solve in it, as text",
    ),
    "imports the program": (
        "def check(answer, a, b):\n    from program import solve\n    return answer == solve(a, b)",
        "No module named 'program'",
    ),
    "takes the program from around it": (
        "import __main__\ndef check(answer, a, b):\n"
        "    for code in __main__.codes: exec(code, globals())\n    return answer == solve(a, b)",
        "'solve' is not defined",
    ),
    "fails": ("def check(answer, a, b): return answer / 0", "the checker fails"),
    "is not sure": ("def check(answer, a, b): return 1", "the checker refuses"),
}


@pytest.mark.parametrize("name", BAD_CHECKERS)
def test_a_checker_is_rejected_by_name(kvg: Run, store: Store, name: str) -> None:
    code, named = BAD_CHECKERS[name]
    Path("c.py").write_text(code)
    refused = kvg(*ADD, "--json")
    assert refused.code == 8 and named in refused.error["message"]


def test_a_checker_finds_the_program_nowhere(kvg: Run, store: Store) -> None:
    """Not in its process, and in no file that it can read: it is called in an enclosure of its own,
    which is given the checker alone."""
    Path("p.py").write_text(f"# XYZ{'ZY'}\n{PROGRAM}")
    Path("c.py").write_text(
        """import __main__, os, sys
MARK = b"XYZ" + b"ZY"
def held():
    yield repr(vars(__main__)).encode()
    yield sys.stdin.read().encode()
    for root in (".", "/tmp", "/dev/shm", "/proc/self"):
        for name in ("environ", "cmdline", "fd/0", "program.py", "p.py", "main.py"):
            try:
                with open(os.path.join(root, name), "rb") as file:
                    yield file.read(1 << 20)
            except OSError:
                pass
        for name in os.listdir(root):
            yield os.fsencode(name)
def check(answer, a, b):
    assert not any(MARK in text for text in held())
    return answer == sum(range(a, b + 1))
"""
    )
    assert kvg(*ADD).code == 0
    Path("c.py").write_text(Path("c.py").read_text().replace('b"XYZ" + b"ZY"', 'b"def held"'))
    assert "AssertionError" in kvg(*ADD).err  # what is there is found: its own text


def test_a_slot_that_does_not_matter(kvg: Run, store: Store) -> None:
    Path("p.py").write_text("def solve(a, b): return b * b\n")
    Path("c.py").write_text("def check(answer, a, b): return answer == b ** 2\n")
    refused = kvg(*ADD, "--json")
    assert refused.code == 8 and "slot 0 never changes" in refused.error["message"]
    # What no other value equals, not even itself, is no other answer.
    Path("p.py").write_text("def solve(a, b): return [b, float('nan')]\n")
    Path("c.py").write_text("def check(answer, a, b): return answer[0] == b\n")
    refused = kvg(*ADD, "--json")
    assert refused.code == 8 and "slot 0 never changes" in refused.error["message"]


def test_white_space_that_does_not_count_is_told(kvg: Run, store: Store) -> None:
    text = "Sum\n  the integers from 3 to 9."
    told = kvg("method", "add", "--text", text, *ADD[4:])
    assert told.code == 0 and "line 2 of the problem begins with white space" in told.err
    assert kvg("solve", TEXT).out == "42\n"


def test_a_text_without_slots(kvg: Run, store: Store) -> None:
    assert kvg("method", "add", "--text", "Say yes.", *ADD[4:]).code == 2


def put_method(store: Store, key: PrivateKey, *, gate: str = METHOD_GATE) -> Digest:
    """A method that nobody proved, with ranges that are open on every side."""
    problem = parse_problem(TEXT)
    program, checker = b"def solve(a, b): return 13\n", b"def check(*_): return True\n"
    slots = (SlotRange("int"), SlotRange("int"))
    method = Method(problem.family.digest, sha256(program), sha256(checker), slots)
    said = TestResult(PASSED, gate, (Resource("family", method.family),))
    with store.pending() as pending:
        for data in (program, checker, problem.family.document, method.document):
            pending.put(data)
        payload = encode_test_result(method.digest, said)
        envelope = pending.put(sign_envelope(payload, [key])).digest
        store.record(method.digest, [envelope])
    return method.digest


def test_a_method_of_an_unknown_key_does_not_answer(kvg: Run, store: Store) -> None:
    digest = put_method(store, key_of("mallory"))
    refused = kvg("solve", TEXT, "--json")
    assert refused.code == 6 and "0 of 1 trusted depositors" in refused.error["message"]
    assert kvg("method", "run", digest, "3", "9").code == 6
    added = kvg(*ADD, "--json").record
    put_method(store, key_of("mallory"))
    done = kvg("solve", TEXT, "--json").record
    assert (done["answer"], done["method"]) == ("42", added["method"])


def test_another_gate_is_no_proof(kvg: Run, store: Store) -> None:
    put_method(store, key_of("mallory"), gate="test:cmd")
    assert kvg("solve", TEXT).code == 3


def test_a_program_that_was_changed(kvg: Run, store: Store) -> None:
    added = kvg(*ADD, "--json").record
    path = store.objects.stored_path(added["program"])
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)
    assert kvg("solve", TEXT).code == 5


def test_a_method_without_its_checker_answers_nothing(kvg: Run, store: Store) -> None:
    added = kvg(*ADD, "--json").record
    assert kvg("fsck").out == "7 objects, 0 artifacts, 1 method, log of 2: no faults\n"
    assert kvg("verify").out.startswith("0 artifacts, 1 method: bytes ok, signature ok, policy ok")
    assert kvg("verify", added["method"][7:19], "--json").record["methods"] == 1
    store.objects.stored_path(added["checker"]).unlink()
    for verb in (("solve", TEXT), ("fsck",), ("verify",), ("verify", added["method"])):
        refused = kvg(*verb)
        assert refused.code == 5
        assert f"method {added['method'][:13]}: checker" in refused.out + refused.err


@pytest.mark.parametrize(("policy", "missing"), [("seeds", "consistency:88"), ("formal", "formal")])
def test_a_policy_that_a_proof_does_not_meet_keeps_a_method_out(
    kvg: Run, store: Store, policy: str, missing: str
) -> None:
    kvg("config", "set", "deposit.require", policy)
    size = store.log.size
    refused = kvg(*ADD, "--json")
    assert refused.code == 8 and refused.error["message"].endswith(f"asked for: {missing}")
    assert store.log.size == size and not store.methods()


@pytest.mark.parametrize("verb", [("solve", TEXT), ("verify",), ("graft", "a")])
def test_a_gate_that_nothing_passes_is_not_required(
    kvg: Run, store: Store, verb: tuple[str, ...]
) -> None:
    for gate in ("bogus", "", "test|bogus", "consistency:0"):
        refused = kvg(*verb, "--require", gate)
        assert refused.code == 2 and "--require" in refused.err, gate


def test_a_method_is_used_where_the_policy_is_met(kvg: Run, store: Store) -> None:
    kvg("config", "set", "deposit.require", '["test", "formal|test:method"]')
    assert kvg(*ADD).code == 0
    for met in ("test", "test:method", "formal|test"):
        assert kvg("solve", TEXT, "--require", met).out == "42\n"
    refused = kvg("solve", TEXT, "--require", "seeds", "--json")
    assert refused.code == 6 and "not met: consistency" in refused.error["message"]
    tried = kvg("solve", TEXT[:-1], "--require", "test", "--model", "none")
    assert tried.code == 6 and "not asked for: test" in tried.err
    kvg("config", "set", "deposit.require", "formal")
    for verb in (("solve", TEXT), ("verify",)):
        refused = kvg(*verb)
        assert refused.code == 6 and "not met: formal" in refused.out + refused.err


def test_a_verdict_is_kept_for_one_log_and_one_trust_file(kvg: Run, store: Store) -> None:
    digest = Digest(kvg(*ADD, "--json").record["method"])
    verdicts = Verdicts()
    first = verdicts.verify(store, digest)
    assert verdicts.verify(store, digest) is first
    put_method(store, key_of("mallory"))
    again = verdicts.verify(store, digest)
    assert again is not first and again == first


def test_a_proof_without_a_sandbox_is_told_wherever_the_method_is_shown(
    kvg: Run, store: Store
) -> None:
    enclosed = kvg("method", "show", kvg(*ADD, "--json").record["method"])
    assert "sandbox     bubblewrap" in enclosed.out
    Path("c.py").write_text(CHECKER + "# again\n")
    added = kvg(*ADD, "--no-sandbox", "--json").record
    assert added["sandbox"] == "none"
    assert "sandbox     none" in kvg("method", "show", added["method"]).out
    audited = kvg("audit", "--json").record
    told = {item["digest"]: item["unenclosed"] for item in audited["artifacts"]}
    assert sorted(told.values()) == [[], ["test:method"]] and told[added["method"]]
    assert all(item["is_method"] and item["stands"] for item in audited["artifacts"])
    assert "method (sandbox: none)" in kvg("audit").out
    assert (
        "1 of 2 artifacts and methods passed gates that ran without a sandbox" in kvg("audit").out
    )
    store.objects.stored_path(added["checker"]).unlink()
    (stands,) = [item for item in kvg("audit", "--json").record["artifacts"] if item["stands"]]
    assert stands["digest"] != added["method"]


def test_without_a_sandbox(kvg: Run, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    kvg(*ADD)
    monkeypatch.setenv("PATH", "/nowhere")
    refused = kvg("solve", TEXT, "--json")
    assert refused.code == 8 and "bubblewrap" in refused.error["message"]
    assert kvg(*ADD).code == 8
    assert kvg("solve", TEXT, "--no-sandbox", "--json").record["sandbox"] == "none"
